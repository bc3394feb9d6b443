// GGUF's names are the same for all families; which of them a family has is told by its own names.
// Source: llama.cpp's conversion scripts and gguf-py's tensor mapping.
#include "core/model/architectures/architecture.h"

namespace promptcached::model {
namespace {

// `name` if the family has such a tensor.
std::string_view where(std::string_view own, std::string_view name) { return own.empty() ? own : name; }

}  // namespace

WeightNames gguf_names(const ModelConfig& config) {
  const WeightNames own = config.architecture->weight_names(config);
  return {.embedding = "token_embd",
          .layer = "blk.#.",
          .attention_norm = "attn_norm",
          .q = where(own.q, "attn_q"),
          .k = where(own.k, "attn_k"),
          .v = where(own.v, "attn_v"),
          .qkv = where(own.qkv, "attn_qkv"),
          .qkv_layout = own.qkv_layout,
          .q_norm = where(own.q_norm, "attn_q_norm"),
          .k_norm = where(own.k_norm, "attn_k_norm"),
          .attention_out = "attn_output",
          .post_attention_norm = where(own.post_attention_norm, "post_attention_norm"),
          .mlp_norm = "ffn_norm",
          .gate = where(own.gate, "ffn_gate"),
          .up = where(own.up, "ffn_up"),
          .gate_up = where(own.gate_up, "ffn_up"),
          .down = "ffn_down",
          .post_mlp_norm = where(own.post_mlp_norm, "post_ffw_norm"),
          .final_norm = "output_norm",
          .head = "output",
          .norms_hold_one = true,
          .rotated_pairs_adjoin =
              config.architecture->name == "LlamaForCausalLM" || config.architecture->name == "MistralForCausalLM"};
}

}  // namespace promptcached::model
