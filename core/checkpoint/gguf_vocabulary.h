// The vocabulary of a GGUF file, checked: tokens, what kind each is, and which of them have a role.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/gguf.h"

namespace promptcached::checkpoint {

// As ggml numbers them, after SentencePiece.
enum class GgufTokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never made from text that spells it
  kUserDefined = 4,  // found in text before anything else
  kUnused = 5,
  kByte = 6,  // "<0x0A>"
};

struct GgufVocabulary {
  std::vector<std::string_view> tokens;  // into the mapped file, by id
  std::vector<GgufTokenKind> kinds;      // as many
  std::optional<std::int64_t> bos{};
  std::optional<std::int64_t> eos{};
  std::optional<std::int64_t> unknown{};
  std::optional<std::int64_t> padding{};
  std::vector<std::int64_t> end_tokens{};  // ends of text, turn and message: where generation stops

  // The spelling of one of the ids above; nothing where there is none.
  std::optional<std::string> spelling(std::optional<std::int64_t> id) const;
};

// Throws std::runtime_error naming file and key: no tokens, kinds missing or not as many, an id beyond the tokens.
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

}  // namespace promptcached::checkpoint
