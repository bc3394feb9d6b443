#include <algorithm>
#include <array>

#include "core/model/architectures/architecture.h"
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

constexpr std::array kArchitectures = {
    &kLlama, &kMistral, &kQwen2, &kQwen3, &kGemma, &kGemma2,  &kGemma3, &kPhi3,
    &kOpt,   &kFalcon,  &kMpt,   &kMptHf, &kGpt2,  &kGptNeoX, &kBloom,  &kStarcoder2,
};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto* const found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                         [&](const Architecture* row) { return row->name == name; });
  return found == kArchitectures.end() ? nullptr : *found;
}

std::string known_architectures() {
  std::string names;
  for (const Architecture* row : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(row->name);
  }
  return names;
}

}  // namespace promptcached::model
