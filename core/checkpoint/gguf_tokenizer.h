// tokenizer.json and tokenizer_config.json of a GGUF file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/checkpoint/gguf.h"

namespace promptcached::checkpoint {

// The text of tokenizer.json. Throws std::runtime_error naming file and key: a tokenizer model or pre-tokenizer that is
// not read, a missing key, lists of different lengths, merges of tokens that are not in the vocabulary.
std::string gguf_tokenizer_json(const GgufFile& file);

// tokenizer_config.json: special tokens by their spellings, whether BOS is put in front, the chat template.
nlohmann::json gguf_tokenizer_config(const GgufFile& file);

}  // namespace promptcached::checkpoint
