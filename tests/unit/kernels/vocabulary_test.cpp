// The passes over logits that look at some of them alone.
#include "core/kernels/vocabulary.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace promptcached::kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Case {
  std::vector<float> logits;
  std::vector<std::uint32_t> bits;
  bool is_set(std::size_t i) const { return ((bits[i / 32] >> (i % 32)) & 1) != 0; }
};

// Words of all bits, of none and of some, in runs.
Case random_case(std::size_t count, std::uint64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Case made;
  for (std::size_t i = 0; i < count; ++i) {
    made.logits.push_back(static_cast<float>(static_cast<int>(random() % 200) - 150));  // equals are frequent
  }
  while (made.bits.size() < (count + 31) / 32) {
    const unsigned kind = random() % 3;
    const std::uint32_t word = kind == 0 ? 0U : kind == 1 ? ~0U : static_cast<std::uint32_t>(random());
    made.bits.insert(made.bits.end(), 1 + random() % 3, word);
  }
  made.bits.resize((count + 31) / 32);
  return made;
}

TEST_CASE("the highest of some is found, the first of equals") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Case made = random_case(1 + seed * 7, seed);
    Highest expected{-1, kNever};
    for (std::size_t i = 0; i < made.logits.size(); ++i) {
      if (made.is_set(i) && made.logits[i] > expected.value) {
        expected = {static_cast<std::int64_t>(i), made.logits[i]};
      }
    }
    const Highest found = highest_of(made.logits, made.bits);
    CHECK(found.index == expected.index);
    CHECK(found.value == expected.value);
  }
  const std::vector<float> never(40, kNever);
  CHECK(highest_of(never, std::vector<std::uint32_t>{~0U, ~0U}).index == -1);
  CHECK(highest_of(never, std::vector<std::uint32_t>{0U, 0U}).index == -1);
}

TEST_CASE("only those are kept whose bit is set") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Case made = random_case(1 + seed * 5, seed);
    std::vector<float> kept = made.logits;
    keep_only(kept, made.bits);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      CHECK(kept[i] == (made.is_set(i) ? made.logits[i] : kNever));
    }
  }
}

}  // namespace
}  // namespace promptcached::kernels
