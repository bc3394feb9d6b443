// What GGUF metadata becomes in config.json and generation_config.json.
#include "core/checkpoint/gguf_config.h"

#include <functional>
#include <map>
#include <stdexcept>

#include "tests/catch.h"
#include "tests/fakes/memory_file.h"
#include "tests/unit/checkpoint/gguf_builder.h"

namespace promptcached::checkpoint {
namespace {

using fakes::MemoryFile;
using Json = nlohmann::json;

using Tensors = std::map<std::string, std::vector<float>>;  // vectors, all of them, but for the embedding

constexpr std::uint64_t kHidden = 64;

// A model of 6 layers and 4 heads of 16, whose vocabulary has 5 tokens.
Metadata sample(const std::string& architecture) {
  const std::string prefix = architecture + ".";
  return {{"general.architecture", text(architecture)},
          {prefix + "context_length", u32(4096)},
          {prefix + "embedding_length", u32(kHidden)},
          {prefix + "block_count", u32(6)},
          {prefix + "feed_forward_length", u32(128)},
          {prefix + "attention.head_count", u32(4)},
          {prefix + "attention.head_count_kv", u32(2)},
          {prefix + "attention.layer_norm_rms_epsilon", f32(1e-5F)},
          {prefix + "rope.freq_base", f32(500000.0F)},
          {"tokenizer.ggml.tokens", texts({"<s>", "</s>", "a", "<|eot_id|>", "ab"})},
          {"tokenizer.ggml.token_type", i32s({3, 3, 1, 3, 1})},
          {"tokenizer.ggml.bos_token_id", u32(0)},
          {"tokenizer.ggml.eos_token_id", u32(1)}};
}

std::string bytes_of(const Metadata& values, const Tensors& tensors) {
  constexpr std::uint64_t kVocabulary = 5;
  constexpr std::uint32_t kF32 = 0;
  GgufBuilder builder;
  builder.values(values);
  std::string data(kVocabulary * kHidden * sizeof(float), '\0');
  builder.tensor("token_embd.weight", {kHidden, kVocabulary}, kF32, 0);
  for (const auto& [name, numbers] : tensors) {
    builder.tensor(name, {numbers.size()}, kF32, data.size());
    data.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
    data.resize((data.size() + builder.alignment - 1) / builder.alignment * builder.alignment);
  }
  return builder.data(data).build();
}

std::shared_ptr<const GgufFile> open(const Metadata& values, const Tensors& tensors = {}) {
  const MemoryFile file(bytes_of(values, tensors));
  return GgufFile::open(file.path());
}

Json config_of(const Metadata& values, const Tensors& tensors = {}) { return gguf_config(*open(values, tensors)); }

// What is thrown, without the file's name; one line.
std::string refusal(const Metadata& values, const Tensors& tensors = {}) {
  const auto file = open(values, tensors);
  try {
    gguf_config(*file);
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    const std::string start = file->path().string() + ": ";
    CHECK(message.starts_with(start));
    CHECK(message.find('\n') == std::string::npos);
    return message.substr(start.size());
  }
  return "";
}

TEST_CASE("a Llama's metadata becomes its config.json", "[checkpoint][gguf]") {
  const Json config = config_of(sample("llama"));
  CHECK(config["architectures"] == Json::array({"LlamaForCausalLM"}));
  CHECK(config["hidden_size"] == 64);
  CHECK(config["intermediate_size"] == 128);
  CHECK(config["num_hidden_layers"] == 6);
  CHECK(config["num_attention_heads"] == 4);
  CHECK(config["num_key_value_heads"] == 2);
  CHECK(config["head_dim"] == 16);
  CHECK(config["max_position_embeddings"] == 4096);
  CHECK(config["vocab_size"] == 5);
  CHECK(config["rms_norm_eps"] == 1e-05);
  CHECK(config["rope_theta"] == 500000.0);
  CHECK(config["rope_scaling"].is_null());
  CHECK(config["tie_word_embeddings"] == true);
  CHECK(config["attention_bias"] == false);
  CHECK(config["mlp_bias"] == false);
  CHECK(config["hidden_act"] == "silu");
  CHECK(!config.contains("partial_rotary_factor"));
}

TEST_CASE("tensors say what metadata does not", "[checkpoint][gguf]") {
  CHECK(config_of(sample("llama"), {{"output.weight", {1}}})["tie_word_embeddings"] == false);
  const Tensors biases = {{"blk.0.attn_q.bias", {1}}, {"blk.0.attn_output.bias", {1}}, {"blk.0.ffn_down.bias", {1}}};
  CHECK(config_of(sample("llama"), biases)["attention_bias"] == true);
  CHECK(config_of(sample("llama"), biases)["mlp_bias"] == true);
  CHECK(refusal(sample("llama"), {{"blk.0.attn_q.bias", {1}}}) ==
        "tensor 'blk.0.attn_output.bias' is missing, though attention has biases elsewhere: not supported for this "
        "architecture");
}

TEST_CASE("missing numbers of KV heads and sizes of heads have their usual values", "[checkpoint][gguf]") {
  CHECK(config_of(without(sample("llama"), "llama.attention.head_count_kv"))["num_key_value_heads"] == 4);
  const Metadata wide = with(sample("llama"), {{"llama.attention.key_length", u32(32)},
                                               {"llama.attention.value_length", u32(32)},
                                               {"llama.rope.dimension_count", u32(24)}});
  CHECK(config_of(wide)["head_dim"] == 32);
  CHECK(config_of(wide)["partial_rotary_factor"] == 0.75);
  CHECK(config_of(with(sample("llama"), {{"llama.attention.head_count_kv", i32s({2, 2, 2})}}))["num_key_value_heads"] ==
        2);
}

TEST_CASE("each architecture has its own words", "[checkpoint][gguf]") {
  const std::string name = GENERATE("qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3");
  Metadata values = sample(name);
  values.emplace(name + ".attention.sliding_window", u32(512));
  const Json config = config_of(values);
  const std::map<std::string, std::string> architectures = {
      {"qwen2", "Qwen2ForCausalLM"},   {"qwen3", "Qwen3ForCausalLM"},   {"gemma", "GemmaForCausalLM"},
      {"gemma2", "Gemma2ForCausalLM"}, {"gemma3", "Gemma3ForCausalLM"}, {"phi3", "Phi3ForCausalLM"}};
  CHECK(config["architectures"][0] == architectures.at(name));
  const bool gemma = name.starts_with("gemma");
  CHECK(config["hidden_act"] == (gemma ? "gelu_pytorch_tanh" : "silu"));
  CHECK((config.contains("sliding_window") && config["sliding_window"] == 512) ==
        (name == "gemma2" || name == "gemma3" || name == "phi3"));
  if (name == "gemma2") {
    CHECK(config["attn_logit_softcapping"] == 50.0);
    CHECK(config["final_logit_softcapping"] == 30.0);
    CHECK(config["layer_types"][0] == "sliding_attention");
    CHECK(config["layer_types"][1] == "full_attention");
  }
  if (name == "gemma3") {
    CHECK(config["attn_logit_softcapping"].is_null());
    CHECK(config["rope_local_base_freq"] == 10000.0);
    CHECK(config["layer_types"][4] == "sliding_attention");
    CHECK(config["layer_types"][5] == "full_attention");
    CHECK(config["query_pre_attn_scalar"] == 16);
  }
}

TEST_CASE("the largest Gemmas scale scores by the share of a head", "[checkpoint][gguf]") {
  const Metadata values = with(sample("gemma2"), {{"gemma2.block_count", u32(46)},
                                                  {"gemma2.attention.key_length", u32(32)},
                                                  {"gemma2.attention.value_length", u32(32)}});
  CHECK(config_of(values)["query_pre_attn_scalar"] == 16);
  CHECK(config_of(with(values, {{"gemma2.block_count", u32(42)}}))["query_pre_attn_scalar"] == 32);
}

TEST_CASE("a Llama with a window is a Mistral", "[checkpoint][gguf]") {
  const Json config = config_of(with(sample("llama"), {{"llama.attention.sliding_window", u32(2048)}}));
  CHECK(config["architectures"][0] == "MistralForCausalLM");
  CHECK(config["sliding_window"] == 2048);
}

TEST_CASE("rope scaling by metadata", "[checkpoint][gguf]") {
  const auto scaling = [](const Metadata& values) { return config_of(with(sample("llama"), values))["rope_scaling"]; };
  CHECK(scaling({{"llama.rope.scaling.type", text("none")}}).is_null());
  CHECK(scaling({{"llama.rope.scaling.type", text("linear")}, {"llama.rope.scaling.factor", f32(4)}}) ==
        Json{{"rope_type", "linear"}, {"factor", 4.0}});
  CHECK(scaling({{"llama.rope.scale_linear", f32(2)}}) == Json{{"rope_type", "linear"}, {"factor", 2.0}});
  const Metadata yarn = {{"llama.rope.scaling.type", text("yarn")},
                         {"llama.rope.scaling.factor", f32(4)},
                         {"llama.rope.scaling.original_context_length", u32(1024)},
                         {"llama.rope.scaling.yarn_beta_fast", f32(16)}};
  CHECK(scaling(yarn) ==
        Json{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}, {"beta_fast", 16.0}});
  CHECK(scaling(with(yarn, {{"llama.rope.scaling.attn_factor", f32(2)}}))["attention_factor"].get<double>() ==
        Approx(2 * 1.1386294));
}

TEST_CASE("rope scaling by tensors", "[checkpoint][gguf]") {
  const Tensors plain = {{"rope_freqs.weight", std::vector<float>(8, 1.0F)}};
  CHECK(config_of(sample("llama"), plain)["rope_scaling"].is_null());
  const Tensors factors = {{"rope_freqs.weight", {1, 1, 1, 1, 1.5F, 8, 8, 8}}};
  CHECK(config_of(sample("llama"), factors)["rope_scaling"] ==
        Json{{"rope_type", "frequency_factors"}, {"factors", {1.0, 1.0, 1.0, 1.0, 1.5, 8.0, 8.0, 8.0}}});
  CHECK(refusal(sample("llama"), {{"rope_freqs.weight", {1, 2}}}) ==
        "tensor 'rope_freqs.weight' must hold 8 values of F32, one for each pair of rotated dimensions");

  const Metadata phi = with(sample("phi3"), {{"phi3.rope.scaling.original_context_length", u32(2048)},
                                             {"phi3.rope.scaling.attn_factor", f32(1.19F)}});
  const Tensors both = {{"rope_factors_short.weight", std::vector<float>(8, 1.05F)},
                        {"rope_factors_long.weight", std::vector<float>(8, 2.5F)}};
  const Json longrope = config_of(phi, both)["rope_scaling"];
  CHECK(longrope["rope_type"] == "longrope");
  CHECK(longrope["short_factor"] == Json(std::vector<double>(8, 1.05)));
  CHECK(longrope["long_factor"] == Json(std::vector<double>(8, 2.5)));
  CHECK(longrope["attention_factor"] == 1.19);
  CHECK(longrope["original_max_position_embeddings"] == 2048);
  CHECK(refusal(phi, {{"rope_factors_long.weight", std::vector<float>(8, 2.5F)}}) ==
        "tensor 'rope_factors_short.weight' is missing, which longrope needs");
}

TEST_CASE("generation stops at the ends of text, turn and message", "[checkpoint][gguf]") {
  const auto ends = [](const Metadata& values) { return gguf_generation_config(*open(values))["eos_token_id"]; };
  CHECK(ends(sample("llama")) == Json({1, 3}));  // by its spelling
  CHECK(ends(with(sample("llama"), {{"tokenizer.ggml.token_type", i32s({3, 3, 1, 1, 1})}})) == 1);
  CHECK(ends(with(sample("llama"), {{"tokenizer.ggml.eot_token_id", u32(1)}})) == 1);
  CHECK(ends(with(sample("llama"), {{"tokenizer.ggml.eom_token_id", u32(4)}})) == Json({1, 3, 4}));
}

TEST_CASE("metadata that cannot be served is refused by key", "[checkpoint][gguf]") {
  const Metadata llama = sample("llama");
  CHECK(refusal(with(llama, {{"general.architecture", text("mamba")}})) ==
        "metadata key 'general.architecture' names 'mamba', which is not read from GGUF; known: llama, qwen2, qwen3, "
        "gemma, "
        "gemma2, gemma3, phi3; use its Hugging Face directory");
  CHECK(refusal(without(llama, "llama.block_count")) == "metadata key 'llama.block_count' is missing");
  CHECK(refusal(without(llama, "tokenizer.ggml.tokens")) == "metadata key 'tokenizer.ggml.tokens' is missing");
  CHECK(refusal(without(llama, "tokenizer.ggml.token_type")) == "metadata key 'tokenizer.ggml.token_type' is missing");
  CHECK(refusal(with(llama, {{"tokenizer.ggml.token_type", i32s({1})}})) ==
        "metadata key 'tokenizer.ggml.token_type' has 1 entries for 5 tokens");
  CHECK(refusal(with(llama, {{"tokenizer.ggml.bos_token_id", u32(5)}})) ==
        "metadata key 'tokenizer.ggml.bos_token_id' is 5, but there are 5 tokens");
  CHECK(refusal(with(llama, {{"llama.vocab_size", u32(6)}})) ==
        "metadata key 'llama.vocab_size' counts 6 tokens, but tensor 'token_embd.weight' has 5 rows");
  CHECK(refusal(
            with(llama, {{"tokenizer.ggml.tokens", texts({"a", "b"})}, {"tokenizer.ggml.token_type", i32s({1, 1})}})) ==
        "metadata key 'tokenizer.ggml.tokens' counts 2 tokens, but tensor 'token_embd.weight' has 5 rows");
  CHECK(refusal(with(llama, {{"llama.attention.head_count_kv", i32s({2, 1})}})) ==
        "metadata key 'llama.attention.head_count_kv' differs between layers, which is not supported");
  CHECK(refusal(with(llama, {{"llama.attention.value_length", u32(8)}})) ==
        "metadata key 'llama.attention.value_length' is 8, but keys have 16 dimensions");
  CHECK(refusal(with(llama, {{"llama.expert_count", u32(8)}})) ==
        "metadata key 'llama.expert_count' is 8.0, which is not supported for this architecture");
  CHECK(
      refusal(with(llama, {{"llama.rope.scaling.type", text("su")}})) ==
      "metadata key 'llama.rope.scaling.type' names 'su', which is not supported; known: none, linear, yarn, longrope");
  CHECK(refusal(with(llama, {{"split.count", u32(3)}})) ==
        "metadata key 'split.count' is 3: the file is one part of a model; join them to one file first");
}

}  // namespace
}  // namespace promptcached::checkpoint
