// The direct pass: one sequence, one full forward pass, every token's place and view given outright. The measure of
// what the server assembles from parts.
//
// It shares no code with core/model: it reads config and weights by itself, fuses nothing, caches nothing, and knows
// neither segments nor KV. No torch in this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace promptcached::parity {

struct DirectInput {
  std::vector<std::int32_t> tokens;     // [n]
  std::vector<std::int32_t> positions;  // [n]
  std::vector<std::uint8_t> mask;       // [n, n] by rows; 1: the row's token sees the column's. It must see itself
  std::vector<std::int32_t> rows;       // tokens whose logits are wanted, ascending; empty: all
};

// mask[row, column] = column <= row.
std::vector<std::uint8_t> causal_mask(std::int32_t n);

class DirectPass final {
 public:
  enum class Weights { kAsStored, kInt8 };
  // Reads a Hugging Face directory into fp32. With kInt8 every matrix of a product is rounded to what --weights int8
  // keeps; for Llama-like models alone. Throws std::runtime_error.
  explicit DirectPass(const std::filesystem::path& directory, Weights weights = Weights::kAsStored);
  ~DirectPass();

  // Logits [rows or n, vocab_size], fp32.
  std::vector<float> logits(const DirectInput& input) const;
  std::int32_t vocab_size() const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace promptcached::parity
