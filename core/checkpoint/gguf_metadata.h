// Metadata of a GGUF file as those read it who translate it: missing keys refused by name, numbers as decimals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/checkpoint/gguf.h"

namespace promptcached::checkpoint {

// Throws std::runtime_error: "model.gguf: metadata key 'llama.block_count' is missing".
[[noreturn]] void refuse_metadata(const GgufFile& file, const std::string& key, const std::string& why);

// Refuses a missing key.
std::string required_text(const GgufFile& file, const std::string& key);
std::int64_t required_integer(const GgufFile& file, const std::string& key);
double required_decimal(const GgufFile& file, const std::string& key);

// A number as the shortest decimal that means the same float32: 1e-05, not 9.999999747378752e-06. So does config.json
// have it, from which the converter made a float32.
double shortest_decimal(double value);
std::optional<double> decimal(const GgufFile& file, const std::string& key);

// One value for all layers. Some files have a list with one for each layer; lists of different values are refused.
std::optional<std::int64_t> uniform_integer(const GgufFile& file, const std::string& key);

}  // namespace promptcached::checkpoint
