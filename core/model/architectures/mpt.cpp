// MPT: ALiBi, layer norms and projections without biases.
#include <cmath>

#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_attention(const Fields& attention, ModelConfig* config) {
  attention.require("alibi", true);
  attention.require("attn_type", "multihead_attention");
  attention.require("qk_ln", false);
  attention.require("prefix_lm", false);
  config->qkv_clip = attention.find("clip_qkv") != nullptr ? attention.number("clip_qkv") : 0.0;
  config->score_scale = attention.find("softmax_scale") != nullptr ? attention.number("softmax_scale") : 0.0;
  config->alibi.max_bias = attention.number("alibi_bias_max", 8.0);
}

void read_mpt(const Fields& fields, ModelConfig* config) {
  config->hidden_size = fields.integer("d_model");
  config->intermediate_size = config->hidden_size * fields.integer("expansion_ratio", 4);
  config->layers = fields.integer("n_layers");
  config->vocab_size = fields.integer("vocab_size");
  config->max_positions = fields.integer("max_seq_len", 2048);
  config->heads = config->kv_heads = fields.integer("n_heads");
  set_head_dim(fields, "n_heads", "d_model", config);
  fields.require("no_bias", true);
  fields.require("logit_scale", nullptr);
  config->norm = {.kind = NormKind::kLayer, .eps = fields.number("layer_norm_epsilon", 1e-5)};
  config->positions = PositionKind::kAlibi;
  config->alibi.kind = AlibiConfig::Kind::kMpt;
  if (const std::optional<Fields> attention = fields.object("attn_config")) {
    read_attention(*attention, config);
  }
  config->activation = Activation::kGelu;
  config->gated_mlp = false;
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
}

WeightNames mpt_names(const ModelConfig& /*config*/) {
  return {.prefix = "transformer.",
          .embedding = "wte",
          .layer = "blocks.#.",
          .attention_norm = "norm_1",
          .qkv = "attn.Wqkv",
          .qkv_layout = QkvLayout::kConcatenated,
          .attention_out = "attn.out_proj",
          .mlp_norm = "norm_2",
          .up = "ffn.up_proj",
          .down = "ffn.down_proj",
          .final_norm = "norm_f",
          .head = "lm_head"};
}

}  // namespace

const Architecture kMpt = {"MPTForCausalLM", read_mpt, mpt_names};    // as its authors spell it
const Architecture kMptHf = {"MptForCausalLM", read_mpt, mpt_names};  // as transformers do

}  // namespace promptcached::model
