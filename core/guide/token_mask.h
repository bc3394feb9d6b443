// TokenMask: which tokens of a vocabulary may come next, a bit each.
#pragma once

#include <cstdint>
#include <vector>

namespace promptcached::guide {

// Bit i % 32 of word i / 32 stands for token i; as many words as a row of logits needs.
using TokenMask = std::vector<std::uint32_t>;

inline std::size_t mask_words(std::size_t tokens) { return (tokens + 31) / 32; }

}  // namespace promptcached::guide
