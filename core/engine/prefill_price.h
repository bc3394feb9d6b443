// PrefillPrice: what computing a prompt's token costs here, as the steps have shown.
#pragma once

#include <cstdint>

namespace promptcached::engine {

// Engine thread only.
class PrefillPrice final {
 public:
  // A step of `rows` tokens took so long. Small ones are mostly overhead, and tell nothing.
  void observe(std::int32_t rows, double seconds) {
    if (rows < kRowsThatTell) {
      return;
    }
    const double price = seconds / rows;
    per_token_ = per_token_ == 0 ? price : 0.8 * per_token_ + 0.2 * price;
  }
  double seconds(std::int32_t tokens) const { return tokens * per_token_; }  // 0: not known yet

 private:
  static constexpr std::int32_t kRowsThatTell = 64;
  double per_token_ = 0;
};

}  // namespace promptcached::engine
