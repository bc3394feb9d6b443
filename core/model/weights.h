// The decoder's weights as tensors, made from the stored ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/device.h"
#include "core/model/linear.h"
#include "core/model/model_config.h"
#include "core/model/safetensors.h"

namespace promptcached::model {

struct LayerWeights {
  at::Tensor attention_norm;  // [hidden]
  Linear qkv;                 // [(heads + 2 * kv_heads) * head_dim, hidden]
  Linear attention_out;       // [hidden, heads * head_dim]
  at::Tensor mlp_norm;        // [hidden]
  Linear gate_up;             // [2 * intermediate, hidden]
  Linear down;                // [hidden, intermediate]
};

struct ModelWeights {
  at::Tensor embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  at::Tensor final_norm;  // [hidden]
  Linear head;            // [vocab, hidden]; the embedding itself when tied

  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
};

// Query, key and value weights are fused, and so are gate and up. What has the right number format already is used
// where the file is mapped; everything else is copied once. Throws std::runtime_error naming the tensor that is missing
// or whose shape or number format does not fit.
ModelWeights load_weights(const ModelConfig& config, const StoredTensors& stored, const Compute& compute);

// Hexadecimal SHA-256 of everything that decides what a token's KV is: config, all weights' content, number format.
std::string fingerprint(const ModelConfig& config, const StoredTensors& stored, const Compute& compute);

}  // namespace promptcached::model
