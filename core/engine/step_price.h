// StepPrice: what computing costs here, as the engine's steps have shown.
#pragma once

#include <array>
#include <cstdint>

namespace promptcached::engine {

// How many keys `rows` tokens look at: `seen` ones before them, and each other's.
constexpr std::int64_t keys_of(std::int64_t rows, std::int64_t seen) { return rows * seen + rows * (rows + 1) / 2; }

// Engine thread only.
class StepPrice final {
 public:
  // A step computed `rows` tokens, which looked at `keys` cached or new ones in all, and took so long.
  void observe(std::int32_t rows, std::int64_t keys, double seconds);

  // What a prompt's tokens cost, computed many at a time; 0: not known yet.
  double seconds(std::int32_t tokens) const { return tokens * per_token_; }
  // What `steps` steps of so many rows and keys in all take; 0: not known yet.
  double seconds(double steps, double rows, double keys) const;

 private:
  static constexpr std::size_t kTerms =
      3;  // a step costs something, as does each row, and each key that a row looks at
  using Terms = std::array<double, kTerms>;
  // Normal equations of a least-squares fit. Steps of every size have their own, so that what is known of long prompts
  // outlives hours of decoding, and they are added for the fit.
  struct Sums {
    std::array<Terms, kTerms> products{};
    Terms targets{};
  };
  void fit();

  double per_token_ = 0;
  Terms prices_{};
  std::array<Sums, 20> sizes_{};  // by the logarithm of rows
};

}  // namespace promptcached::engine
