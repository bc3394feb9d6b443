// What a step costs is learned from the steps before it.
#include "core/engine/step_price.h"

#include "tests/catch.h"

namespace promptcached::engine {
namespace {

// A machine on which a step costs this much.
double cost(std::int64_t rows, std::int64_t keys) {
  return 0.008 + 1.2e-3 * static_cast<double>(rows) + 1e-6 * static_cast<double>(keys);
}

void observe(StepPrice& price, std::int32_t rows, std::int64_t seen, double noise = 1) {
  price.observe(rows, keys_of(rows, seen), noise * cost(rows, keys_of(rows, seen)));
}

void check_price(const StepPrice& price, std::int32_t rows, std::int64_t seen, double tolerance) {
  const std::int64_t keys = keys_of(rows, seen);
  INFO(rows << " rows behind " << seen << " tokens");
  CHECK(price.seconds(1, rows, static_cast<double>(keys)) == Approx(cost(rows, keys)).epsilon(tolerance));
}

TEST_CASE("nothing is known before the first step", "[engine]") {
  const StepPrice price;
  CHECK(price.seconds(100) == 0);
  CHECK(price.seconds(1, 100, 1000) == 0);
}

TEST_CASE("steps not seen are priced from those that were", "[engine]") {
  StepPrice price;
  for (int i = 0; i < 20; ++i) {
    const double noise = i % 2 == 0 ? 1.1 : 0.9;
    observe(price, 512, 512 * (i % 5), noise);
    observe(price, 20 + i, 3000 - 100 * i, noise);
    observe(price, 1, 200 * i, noise);
  }
  check_price(price, 512, 4000, 0.15);
  check_price(price, 100, 0, 0.15);
  check_price(price, 24, 3500, 0.15);
  check_price(price, 1, 7000, 0.15);
}

TEST_CASE("hours of decoding leave prompts' price known", "[engine]") {
  StepPrice price;
  for (int i = 0; i < 10; ++i) {
    observe(price, 512, 512 * i);
    observe(price, 64, 100 * i);
  }
  for (int i = 0; i < 100000; ++i) {
    observe(price, 1, 3000 + i % 100);
  }
  check_price(price, 512, 2000, 0.05);
  check_price(price, 1, 3000, 0.05);
}

TEST_CASE("a single kind of step prices itself, and others by their rows", "[engine]") {
  StepPrice price;
  for (int i = 0; i < 5; ++i) {
    price.observe(256, 0, 0.256);
  }
  CHECK(price.seconds(1, 256, 0) == Approx(0.256).epsilon(0.01));
  CHECK(price.seconds(1, 128, 0) == Approx(0.128).epsilon(0.01));
  CHECK(price.seconds(100) == Approx(0.1).epsilon(0.01));
}

}  // namespace
}  // namespace promptcached::engine
