#include "core/engine/step_price.h"

#include <algorithm>
#include <bit>

namespace promptcached::engine {
namespace {

constexpr std::int32_t kManyRows = 64;  // a smaller step is mostly overhead, and tells nothing of a token's price
constexpr double kForget = 0.9;         // of what earlier steps of a size have shown
constexpr int kRounds = 100;

}  // namespace

void StepPrice::observe(std::int32_t rows, std::int64_t keys, double seconds) {
  if (rows <= 0 || seconds <= 0) {
    return;
  }
  if (rows >= kManyRows) {
    const double price = seconds / rows;
    per_token_ = per_token_ == 0 ? price : 0.8 * per_token_ + 0.2 * price;
  }
  // Divided by the time it took, so that errors count in proportion: small steps matter as much as large ones.
  const Terms terms{1 / seconds, rows / seconds, static_cast<double>(keys) / seconds};
  const auto size = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(rows)));
  Sums& sums = sizes_[std::min(size, sizes_.size() - 1)];
  for (std::size_t i = 0; i < kTerms; ++i) {
    sums.targets[i] = kForget * sums.targets[i] + terms[i];
    for (std::size_t j = 0; j < kTerms; ++j) {
      sums.products[i][j] = kForget * sums.products[i][j] + terms[i] * terms[j];
    }
  }
  fit();
}

double StepPrice::seconds(double steps, double rows, double keys) const {
  return steps * prices_[0] + rows * prices_[1] + keys * prices_[2];
}

// One price after another, none below 0, from the last fit on: what the steps seen do not tell apart stays as it was.
// Before anything is known all goes to the rows.
void StepPrice::fit() {
  Sums all;
  for (const Sums& sums : sizes_) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      all.targets[i] += sums.targets[i];
      for (std::size_t j = 0; j < kTerms; ++j) {
        all.products[i][j] += sums.products[i][j];
      }
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}, std::size_t{2}}) {
      double rest = all.targets[i];
      for (std::size_t j = 0; j < kTerms; ++j) {
        rest -= j == i ? 0 : all.products[i][j] * prices_[j];
      }
      prices_[i] = all.products[i][i] > 0 ? std::max(0.0, rest / all.products[i][i]) : 0;
    }
  }
}

}  // namespace promptcached::engine
