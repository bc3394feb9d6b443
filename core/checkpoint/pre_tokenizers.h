// Pre-tokenizers of byte-level BPE: how text is cut into words before those are tokenised. A GGUF file names its own.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace promptcached::checkpoint {

struct PreTokenizer {
  std::string_view name;                     // of tokenizer.ggml.pre
  std::array<std::string_view, 5> splits{};  // regular expressions, one after the other; unused ones are empty
  bool individual_digits = false;            // digits stand alone, before everything else
  bool gpt2_words = false;                   // GPT-2's own splitting, behind all others
  bool nfc = false;                          // text is normalised to NFC first
  bool whole_words = false;                  // a word in the vocabulary is one token, whatever merges say
  bool adds_bos = false;                     // where the file does not say
};

// nullptr when the name is not known.
const PreTokenizer* find_pre_tokenizer(std::string_view name);

// All names, for messages: "gpt-2, smollm".
std::string known_pre_tokenizers();

// "pre_tokenizer" and "normalizer" of tokenizer.json.
nlohmann::json pre_tokenizer_json(const PreTokenizer& pre);
nlohmann::json normalizer_json(const PreTokenizer& pre);

}  // namespace promptcached::checkpoint
