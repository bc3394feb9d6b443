#include "core/checkpoint/merge_derivation.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace promptcached::checkpoint {
namespace {

using Ids = std::unordered_map<std::string_view, std::uint32_t>;

struct Candidate {
  float score = 0;
  std::uint32_t left_length = 0;  // in characters
  std::uint32_t right_length = 0;
  DerivedMerge merge;
};

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

std::uint32_t count_characters(std::string_view text) {
  return static_cast<std::uint32_t>(std::ranges::count_if(text, starts_character));
}

void add_candidates(std::string_view token, float score, const Ids& ids, std::vector<Candidate>* candidates) {
  const std::uint32_t length = count_characters(token);
  std::uint32_t left_length = 0;
  for (std::size_t cut = 1; cut < token.size(); ++cut) {
    if (!starts_character(token[cut])) {
      continue;
    }
    ++left_length;
    const auto left = ids.find(token.substr(0, cut));
    if (left == ids.end()) {
      continue;
    }
    const auto right = ids.find(token.substr(cut));
    if (right != ids.end()) {
      candidates->push_back({score, left_length, length - left_length, {left->second, right->second}});
    }
  }
}

}  // namespace

std::vector<DerivedMerge> derive_merges(std::span<const std::string_view> tokens, std::span<const float> scores,
                                        const std::vector<bool>& takes_part) {
  Ids ids;
  ids.reserve(tokens.size());
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (takes_part[id]) {
      ids.emplace(tokens[id], id);
    }
  }
  std::vector<Candidate> candidates;
  candidates.reserve(2 * tokens.size());
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (takes_part[id]) {
      add_candidates(tokens[id], scores[id], ids, &candidates);
    }
  }
  // Stable: tokens of one score stay in the order of their ids.
  std::ranges::stable_sort(candidates, std::ranges::greater{}, [](const Candidate& candidate) {
    return std::tuple(candidate.score, candidate.left_length, candidate.right_length);
  });
  std::vector<DerivedMerge> merges;
  merges.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    merges.push_back(candidate.merge);
  }
  return merges;
}

}  // namespace promptcached::checkpoint
