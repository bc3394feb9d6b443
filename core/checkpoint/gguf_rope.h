// How a GGUF file says that rotation angles are scaled, as config.json says it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/checkpoint/gguf.h"

namespace promptcached::checkpoint {

// "rope_scaling" of config.json: null where angles are not scaled. `rotated_dims`: dimensions of a head that turn.
// Throws std::runtime_error naming file and key or tensor: a missing or contradicting key, a type that is not known.
nlohmann::json gguf_rope_scaling(const GgufFile& file, const std::string& architecture, std::int64_t rotated_dims);

}  // namespace promptcached::checkpoint
