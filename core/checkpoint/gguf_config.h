// config.json and generation_config.json of a GGUF file, in the words of transformers.
#pragma once

#include <nlohmann/json.hpp>

#include "core/checkpoint/gguf.h"

namespace promptcached::checkpoint {

// Throws std::runtime_error naming file and key or tensor: an architecture that is not read, a key that is missing or
// contradicts another, something the file's model does that config.json has no word for.
nlohmann::json gguf_config(const GgufFile& file);

nlohmann::json gguf_generation_config(const GgufFile& file);

}  // namespace promptcached::checkpoint
