// The decoder's weights as tensors, made from the stored ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/stored_tensors.h"
#include "core/model/device.h"
#include "core/model/elementwise.h"
#include "core/model/embedding.h"
#include "core/model/linear.h"
#include "core/model/model_config.h"

namespace promptcached::model {

// What a model has not is undefined.
struct LayerWeights {
  Norm attention_norm;   // [hidden]
  Linear qkv;            // [(heads + 2 * kv_heads) * head_dim, hidden]: all query heads, all key heads, all value heads
  at::Tensor q_norm;     // [head_dim]
  at::Tensor k_norm;     // [head_dim]
  Linear attention_out;  // [hidden, heads * head_dim]
  Norm post_attention_norm;  // [hidden]
  Norm mlp_norm;             // [hidden]
  Linear up;                 // [2 * intermediate (gate, up), hidden] if the MLP is gated, else [intermediate, hidden]
  Linear down;               // [hidden, intermediate]
  Norm post_mlp_norm;        // [hidden]
};

struct ModelWeights {
  Embedding embedding;
  at::Tensor positions;  // [position_offset + max_positions or more, hidden]
  Norm embedding_norm;   // [hidden]
  std::vector<LayerWeights> layers;
  Norm final_norm;  // [hidden]
  Linear head;      // [vocab, hidden]

  std::int64_t parameters = 0;
};

// Query, key and value weights become one, and so do gate and up, whatever the checkpoint's own layout. What has the
// right layout and number format already is used where the file is mapped; everything else is copied once, quantised
// numbers expanded. With int8 weights in `compute` all matrices are rounded to 8 bits and the file's pages let go.
// `log`, which may be empty, hears now and then how far it is. Throws std::runtime_error naming the tensor that is
// missing or whose shape or number format does not fit.
ModelWeights load_weights(const ModelConfig& config, const checkpoint::StoredTensors& stored, const Compute& compute,
                          const std::function<void(const std::string&)>& log);

}  // namespace promptcached::model
