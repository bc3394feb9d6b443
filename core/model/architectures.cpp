#include "core/model/architectures.h"

#include <algorithm>
#include <array>

namespace promptcached::model {
namespace {

constexpr std::array kArchitectures = {
    Architecture{.name = "LlamaForCausalLM"},
    Architecture{.name = "MistralForCausalLM",
                 .default_kv_heads = 8,
                 .default_max_positions = 131072,
                 .default_sliding_window = 4096,
                 .has_sliding_window = true,
                 .has_attention_bias = false,
                 .has_mlp_bias = false},
};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto* const found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                         [&](const Architecture& row) { return row.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

std::string known_architectures() {
  std::string names;
  for (const Architecture& row : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

}  // namespace promptcached::model
