// Attention loops against the definition in double precision, under every instruction set this machine has.
#include "core/kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/simd_target.h"
#include "tests/catch.h"

namespace promptcached::kernels {
namespace {

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const float mantissa = static_cast<float>(bits & 1023) / 1024.0F;
  const float size = exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0F + mantissa, exponent - 15);
  return (bits & 0x8000) != 0 ? -size : size;
}

// Numbers in a KV format, and what they stand for.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

Stored random_numbers(std::size_t count, KvFormat format, std::mt19937* generator) {
  std::normal_distribution<float> normal;
  Stored stored{std::vector<std::byte>(count * (format == KvFormat::kFp32 ? 4 : 2)), std::vector<float>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    float value = normal(*generator);
    if (format == KvFormat::kFp32) {
      std::memcpy(&stored.bytes[i * 4], &value, 4);
    } else {
      auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      if (format == KvFormat::kBf16) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
      } else {  // any finite half of up to 4, subnormal ones among them
        bits = static_cast<std::uint16_t>((*generator)() % 17 < 16 ? 0x3000 + (*generator)() % 0x1000
                                                                   : (*generator)() % 8);
        bits = static_cast<std::uint16_t>(bits | ((*generator)() % 2 << 15));
        value = from_half(bits);
      }
      std::memcpy(&stored.bytes[i * 2], &bits, 2);
    }
    stored.values[i] = value;
  }
  return stored;
}

struct Shape {
  std::int64_t head_dim = 64;
  std::int64_t group = 3;
  std::vector<std::int32_t> rows{0};
  std::vector<std::int64_t> pieces{100};  // tokens of each
  KvFormat format = KvFormat::kFp32;
  bool limited = false;  // the last piece is causal, one before it hidden from the first row
  AttentionRule rule{};  // slopes are made up where it has any
};

// A random task, its result and what that should be.
class Case final {
 public:
  explicit Case(const Shape& shape) : shape_(shape), generator_(7) {
    all_rows_ = *std::max_element(shape_.rows.begin(), shape_.rows.end()) + 1;
    std::normal_distribution<float> normal;
    q_.resize(static_cast<std::size_t>(all_rows_ * shape_.group * shape_.head_dim));
    std::generate(q_.begin(), q_.end(), [&] { return normal(generator_); });
    tokens_ = std::accumulate(shape_.pieces.begin(), shape_.pieces.end(), std::int64_t{0});
    k_ = random_numbers(static_cast<std::size_t>(tokens_ * shape_.head_dim), shape_.format, &generator_);
    v_ = random_numbers(static_cast<std::size_t>(tokens_ * shape_.head_dim), shape_.format, &generator_);
    positions_.resize(static_cast<std::size_t>(tokens_));
    std::iota(positions_.begin(), positions_.end(), 3.0F);
    row_positions_.resize(static_cast<std::size_t>(all_rows_));
    std::iota(row_positions_.begin(), row_positions_.end(), static_cast<float>(tokens_) + 3.0F);
    slopes_.resize(static_cast<std::size_t>(shape_.group));
    for (std::size_t i = 0; i < slopes_.size(); ++i) {
      slopes_[i] = 0.25F / static_cast<float>(i + 1);
    }
    if (shape_.rule.slopes != nullptr) {
      shape_.rule.slopes = slopes_.data();
    }
    make_pieces();
  }

  void check() {
    const auto rows = static_cast<std::int64_t>(shape_.rows.size());
    const std::int64_t row_size = shape_.group * shape_.head_dim;
    const std::int64_t stride = row_size + 5;
    std::vector<float> out(static_cast<std::size_t>(rows * stride), 99.0F);
    std::vector<float> lse(static_cast<std::size_t>(rows * shape_.group), 99.0F);
    compute_attention({pieces_, shape_.format, shape_.head_dim, shape_.group, shape_.rows, q_.data(),
                       row_positions_.data(), shape_.rule, out.data(), stride, lse.data()});
    double worst = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t member = 0; member < shape_.group; ++member) {
        const auto [expected, expected_lse] = reference(row, member);
        const float* actual = out.data() + row * stride + member * shape_.head_dim;
        for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
          worst = std::max(worst, std::abs(expected[static_cast<std::size_t>(i)] - double{actual[i]}));
        }
        const double actual_lse = lse[static_cast<std::size_t>(row * shape_.group + member)];
        worst = std::max(worst, expected_lse < -1e20 ? actual_lse + 1e20 : std::abs(expected_lse - actual_lse));
      }
      for (std::int64_t i = row_size; i < stride; ++i) {
        CHECK(out[static_cast<std::size_t>(row * stride + i)] == 99.0F);
      }
    }
    CHECK(worst < 2e-5);
  }

 private:
  void make_pieces() {
    const std::size_t element = shape_.format == KvFormat::kFp32 ? 4 : 2;
    const auto rows = shape_.rows.size();
    limits_.resize(shape_.pieces.size(), std::vector<std::int32_t>(rows));
    std::int64_t first = 0;
    for (std::size_t i = 0; i < shape_.pieces.size(); ++i) {
      const std::int64_t tokens = shape_.pieces[i];
      const std::size_t offset = static_cast<std::size_t>(first * shape_.head_dim) * element;
      for (std::size_t row = 0; row < rows; ++row) {
        const auto causal = std::min<std::int64_t>(tokens, static_cast<std::int64_t>(row) + 1);
        const bool last = i + 1 == shape_.pieces.size();
        limits_[i][row] = static_cast<std::int32_t>(!shape_.limited ? tokens : last ? causal : row == 0 ? 0 : tokens);
      }
      pieces_.push_back({k_.bytes.data() + offset, v_.bytes.data() + offset, tokens,
                         shape_.limited ? limits_[i].data() : nullptr, positions_.data() + first});
      first += tokens;
    }
  }

  bool sees(std::int64_t row, std::int64_t token) const {
    const double distance = row_positions_[static_cast<std::size_t>(shape_.rows[static_cast<std::size_t>(row)])] -
                            positions_[static_cast<std::size_t>(token)];
    if (shape_.rule.window > 0 && distance >= shape_.rule.window) {
      return false;
    }
    std::int64_t first = 0;
    for (std::size_t i = 0;; ++i) {
      if (token < first + shape_.pieces[i]) {
        return token - first < limits_[i][static_cast<std::size_t>(row)];
      }
      first += shape_.pieces[i];
    }
  }

  std::pair<std::vector<double>, double> reference(std::int64_t row, std::int64_t member) const {
    const std::int64_t source = shape_.rows[static_cast<std::size_t>(row)];
    const float* query = q_.data() + (source * shape_.group + member) * shape_.head_dim;
    std::vector<double> scores(static_cast<std::size_t>(tokens_), -std::numeric_limits<double>::infinity());
    for (std::int64_t token = 0; token < tokens_; ++token) {
      if (!sees(row, token)) {
        continue;
      }
      double s = 0;
      for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
        s += double{query[i]} * double{k_.values[static_cast<std::size_t>(token * shape_.head_dim + i)]};
      }
      s /= std::sqrt(static_cast<double>(shape_.head_dim));
      if (shape_.rule.softcap > 0) {
        s = shape_.rule.softcap * std::tanh(s / shape_.rule.softcap);
      }
      if (shape_.rule.slopes != nullptr) {
        s -= slopes_[static_cast<std::size_t>(member)] *
             (row_positions_[static_cast<std::size_t>(source)] - positions_[static_cast<std::size_t>(token)]);
      }
      scores[static_cast<std::size_t>(token)] = s;
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    std::vector<double> out(static_cast<std::size_t>(shape_.head_dim));
    if (std::isinf(largest)) {
      return {out, -1e30};
    }
    double total = 0;
    for (std::int64_t token = 0; token < tokens_; ++token) {
      const double e = std::exp(scores[static_cast<std::size_t>(token)] - largest);
      total += e;
      for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
        out[static_cast<std::size_t>(i)] +=
            e * double{v_.values[static_cast<std::size_t>(token * shape_.head_dim + i)]};
      }
    }
    for (double& x : out) {
      x /= total;
    }
    return {out, largest + std::log(total)};
  }

  Shape shape_;
  std::mt19937 generator_;
  std::int64_t all_rows_ = 0;
  std::int64_t tokens_ = 0;
  std::vector<float> q_;
  Stored k_;
  Stored v_;
  std::vector<float> positions_;
  std::vector<float> row_positions_;
  std::vector<float> slopes_;
  std::vector<std::vector<std::int32_t>> limits_;
  std::vector<KeyPiece> pieces_;
};

std::vector<std::int32_t> count_from(std::int32_t first, std::int32_t count) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

const std::vector<std::vector<std::int64_t>> kPieces = {
    {1}, {2}, {63}, {64}, {65}, {300}, {1, 1, 1, 1, 1}, {7, 64, 1, 130, 63}, {64, 64, 3}, {100, 1, 33}};

}  // namespace

TEST_CASE("attention equals its definition", "[kernels]") {
  for (const std::string& target : simd_targets()) {
    REQUIRE(limit_simd_target(target));
    for (const std::int64_t head_dim : {4, 8, 16, 20, 64, 80, 96, 128, 256}) {
      for (const std::int64_t group : {1, 3, 7}) {
        for (const std::int32_t rows : {1, 2, 3, 8, 33}) {
          for (const KvFormat format : {KvFormat::kFp32, KvFormat::kFp16, KvFormat::kBf16}) {
            const auto& pieces = kPieces[static_cast<std::size_t>(head_dim + group + rows) % kPieces.size()];
            INFO(target << ", " << group << " heads of " << head_dim << ", " << rows << " rows");
            Case({head_dim, group, count_from(2, rows), pieces, format}).check();
          }
        }
      }
    }
  }
}

TEST_CASE("attention walks over pieces of any size", "[kernels]") {
  for (const std::string& target : simd_targets()) {
    REQUIRE(limit_simd_target(target));
    for (const auto& pieces : kPieces) {
      for (const auto& rows :
           {std::vector<std::int32_t>{1}, {0, 2, 3}, {5, 6, 8, 9, 11, 12, 30, 31, 32}, count_from(0, 100)}) {
        for (const bool limited : {false, true}) {
          for (const KvFormat format : {KvFormat::kFp32, KvFormat::kFp16}) {
            INFO(target << ", " << pieces.size() << " pieces, " << rows.size() << " rows, limited " << limited);
            Case({32, 2, rows, pieces, format, limited}).check();
          }
        }
      }
    }
  }
}

TEST_CASE("attention follows caps, slopes and windows", "[kernels]") {
  const float some = 1;
  for (const std::string& target : simd_targets()) {
    REQUIRE(limit_simd_target(target));
    for (const AttentionRule& rule : {AttentionRule{2, 0, nullptr}, AttentionRule{0, 40, nullptr},
                                      AttentionRule{0, 0, &some}, AttentionRule{3, 130, &some}}) {
      for (const std::int32_t rows : {1, 2, 30}) {
        for (const auto& pieces : kPieces) {
          INFO(target << ", " << rows << " rows, cap " << rule.softcap << ", window " << rule.window);
          Case({16, 3, count_from(1, rows), pieces, KvFormat::kFp32, true, rule}).check();
        }
      }
    }
  }
}

TEST_CASE("results over parts of the keys merge into that over all", "[kernels]") {
  const std::int64_t head_dim = 20;
  const std::vector<float> a(head_dim, 1.0F);
  const std::vector<float> b(head_dim, 3.0F);
  const std::vector<float> nothing(head_dim, 0.0F);
  std::vector<float> out(head_dim);
  const std::vector<AttentionPart> parts = {
      {a.data(), 80.0F}, {nothing.data(), -1e30F}, {b.data(), 80.0F + std::log(3.0F)}};
  for (const std::string& target : simd_targets()) {
    REQUIRE(limit_simd_target(target));
    merge_attention(parts, head_dim, out.data());
    for (const float x : out) {
      CHECK(x == Approx(2.5));
    }
    merge_attention(std::span(parts).first(1), head_dim, out.data());
    CHECK(out == a);
  }
}

TEST_CASE("a query's result does not depend on the task's other queries", "[kernels]") {
  const std::int64_t head_dim = 64;
  std::mt19937 generator(3);
  const Stored q = random_numbers(40 * head_dim, KvFormat::kFp32, &generator);
  const Stored k = random_numbers(150 * head_dim, KvFormat::kFp32, &generator);
  const KeyPiece piece{k.bytes.data(), k.bytes.data(), 150};
  const auto compute = [&](std::vector<std::int32_t> rows) {
    std::vector<float> out(rows.size() * head_dim);
    std::vector<float> lse(rows.size());
    compute_attention({{&piece, 1},
                       KvFormat::kFp32,
                       head_dim,
                       1,
                       rows,
                       q.values.data(),
                       nullptr,
                       {},
                       out.data(),
                       head_dim,
                       lse.data()});
    return out;
  };
  const std::vector<float> all = compute(count_from(0, 40));
  const std::vector<float> some = compute(count_from(3, 20));
  CHECK(std::equal(some.begin(), some.end(), all.begin() + 3 * head_dim));
  const std::vector<float> four = compute({4, 5, 6, 7});
  const std::vector<float> one = compute({6});
  CHECK(std::equal(one.begin(), one.end(), four.begin() + 2 * head_dim));
}

}  // namespace promptcached::kernels
