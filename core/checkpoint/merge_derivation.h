// Merges of a SentencePiece vocabulary: it ranks its tokens where BPE ranks pairs of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace promptcached::checkpoint {

struct DerivedMerge {
  std::uint32_t left = 0;  // ids
  std::uint32_t right = 0;
};

// Every way to put a token together from two others, best first: by the token's score, then longer left parts first, as
// transformers' converters order them. A token with `takes_part` false is neither made nor used. All three have one
// entry for each id.
std::vector<DerivedMerge> derive_merges(std::span<const std::string_view> tokens, std::span<const float> scores,
                                        const std::vector<bool>& takes_part);

}  // namespace promptcached::checkpoint
