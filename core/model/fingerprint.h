// A model's identity.
#pragma once

#include <string>

#include "core/checkpoint/stored_tensors.h"
#include "core/model/device.h"
#include "core/model/model_config.h"

namespace promptcached::model {

// Hexadecimal SHA-256 of everything that decides what a token's KV is: config, all weights' content, number format.
std::string fingerprint(const ModelConfig& config, const checkpoint::StoredTensors& stored, const Compute& compute);

}  // namespace promptcached::model
