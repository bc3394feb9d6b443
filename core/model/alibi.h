// ALiBi (Press et al. 2022): attention with linear biases, a position scheme without rotation or embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/model/model_config.h"

namespace promptcached::model {

// What each query head's scores lose for each position that a key stands before the query: [heads] fp32.
at::Tensor alibi_slopes(const AlibiConfig& config, std::int64_t heads);

}  // namespace promptcached::model
