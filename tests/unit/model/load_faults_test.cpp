// What can be wrong with a model directory, and that each fault is refused by the name of the file, tensor or field.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

using namespace checkpoint;  // NOLINT(google-build-using-namespace)

using Json = nlohmann::json;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The refusal of a tiny model whose config.json was changed.
std::string config_refusal(const std::string& name, const std::function<void(Json&)>& edit) {
  const TemporaryDirectory directory;
  copy_model(name, directory.path(), edit);
  return message_of([&] { load(directory.path()); });
}

// The logits of a tiny model whose config.json was changed, for one fixed text.
std::vector<float> logits_with(const std::string& name, const std::function<void(Json&)>& edit) {
  const TemporaryDirectory directory;
  copy_model(name, directory.path(), edit);
  const auto model = load(directory.path());
  return run_whole(*model, random_tokens(24, model->info().vocab_size, 5));
}

void write_safetensors(const std::filesystem::path& path, const std::string& header, const std::string& data,
                       std::uint64_t claimed = 0) {
  const std::uint64_t length = claimed != 0 ? claimed : header.size();
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(&length), sizeof length);
  stream << header << data;
}

// Rewrites a model's file with one more tensor, or without one.
void rewrite(const std::filesystem::path& file, const std::function<void(Json&, std::string&)>& change) {
  std::ifstream stream(file, std::ios::binary);
  std::uint64_t length = 0;
  stream.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  stream.read(header.data(), static_cast<std::streamsize>(length));
  std::string data((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  Json json = Json::parse(header);
  change(json, data);
  write_safetensors(file, json.dump(), data);
}

std::string file_refusal(const std::string& header, const std::string& data, std::uint64_t claimed = 0) {
  const TemporaryDirectory directory;
  write_safetensors(directory.path() / "model.safetensors", header, data, claimed);
  const std::string message = message_of([&] { read_safetensors(directory.path()); });
  CHECK(contains(message, "model.safetensors"));
  return message;
}

}  // namespace

TEST_CASE("S27: a missing or short shard is refused by name", "[model][load]") {
  const TemporaryDirectory directory;
  copy_model("tiny-sharded", directory.path());
  const Json index = Json::parse(std::ifstream(directory.path() / "model.safetensors.index.json"));
  const std::string shard = index["weight_map"]["model.layers.1.mlp.down_proj.weight"];
  const std::filesystem::path path = directory.path() / shard;
  const auto refusal = [&] { return message_of([&] { load(directory.path()); }); };
  CHECK_NOTHROW(load(directory.path()));

  SECTION("missing") {
    std::filesystem::remove(path);
    CHECK(contains(refusal(), shard));
    CHECK(contains(refusal(), "missing"));
  }
  SECTION("truncated in its data") {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
    CHECK(contains(refusal(), shard));
    CHECK(contains(refusal(), "truncated"));
  }
  SECTION("truncated in its header") {
    std::filesystem::resize_file(path, 100);
    CHECK(contains(refusal(), shard));
    CHECK(contains(refusal(), "truncated"));
  }
  SECTION("empty") {
    std::filesystem::resize_file(path, 0);
    CHECK(contains(refusal(), shard));
    CHECK(contains(refusal(), "truncated"));
  }
  SECTION("without a tensor that the index promises") {
    Json changed = index;
    changed["weight_map"]["model.layers.9.extra"] = shard;
    std::ofstream(directory.path() / "model.safetensors.index.json") << changed.dump();
    CHECK(contains(refusal(), shard));
    CHECK(contains(refusal(), "model.layers.9.extra"));
  }
  SECTION("outside the directory") {
    Json changed = index;
    changed["weight_map"]["model.norm.weight"] = "../" + shard;
    std::ofstream(directory.path() / "model.safetensors.index.json") << changed.dump();
    CHECK(contains(refusal(), "model.norm.weight"));
  }
  SECTION("an index that is not JSON") {
    std::ofstream(directory.path() / "model.safetensors.index.json") << "{";
    CHECK(contains(refusal(), "model.safetensors.index.json"));
  }
}

TEST_CASE("S27: tied and untied heads", "[model][load]") {
  const OracleCase oracle = read_oracle(oracle_path("tiny-gqa") / "oracle.safetensors", "plain");
  SECTION("a tied model ignores a stray lm_head") {
    const TemporaryDirectory directory;
    copy_model("tiny-gqa", directory.path());
    rewrite(directory.path() / "model.safetensors", [](Json& header, std::string& data) {
      const std::size_t bytes = std::size_t{128} * 48 * 4;
      header["lm_head.weight"] = {
          {"dtype", "F32"}, {"shape", {128, 48}}, {"data_offsets", {data.size(), data.size() + bytes}}};
      data += std::string(bytes, '\x3f');
    });
    const auto model = load(directory.path());
    CHECK(difference(run_whole(*model, oracle.tokens), oracle.logits) < 1e-4);
  }
  SECTION("an untied model without lm_head is refused") {
    const std::string message = config_refusal("tiny-gqa", [](Json& config) { config["tie_word_embeddings"] = false; });
    CHECK(contains(message, "lm_head.weight"));
    CHECK(contains(message, "model.safetensors"));
  }
  SECTION("a directory without weights is refused") {
    const TemporaryDirectory directory;
    copy_model("tiny-gqa", directory.path());
    std::filesystem::remove(directory.path() / "model.safetensors");
    CHECK(contains(message_of([&] { load(directory.path()); }), "model.safetensors"));
  }
}

TEST_CASE("A tensor that is missing or does not fit is refused by name", "[model][load]") {
  const TemporaryDirectory directory;
  copy_model("tiny-gqa", directory.path());
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  const auto refusal = [&](const std::function<void(Json&, std::string&)>& change) {
    rewrite(directory.path() / "model.safetensors", change);
    return message_of([&] { load(directory.path()); });
  };
  SECTION("missing") {
    const std::string message = refusal([&](Json& header, std::string&) {
      header["renamed"] = header[name];
      header.erase(name);
    });
    CHECK(contains(message, name));
    CHECK(contains(message, "missing"));
  }
  SECTION("another shape") {
    const std::string message = refusal([&](Json& header, std::string&) { header[name]["shape"] = {48, 16}; });
    CHECK(contains(message, name));
    CHECK(contains(message, "[48, 16]"));
    CHECK(contains(message, "[16, 48]"));
  }
  SECTION("another number format") {
    const std::string message = refusal([&](Json& header, std::string&) { header[name]["dtype"] = "I32"; });
    CHECK(contains(message, name));
    CHECK(contains(message, "I32"));
  }
}

TEST_CASE("Safetensors files are checked before they are read", "[model][load]") {
  const std::string two = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)";
  const std::string eight(8, '\0');
  CHECK(contains(file_refusal("{}", "", std::uint64_t{1} << 60U), "header"));
  CHECK(contains(file_refusal("{}", "", 50), "truncated"));
  CHECK(contains(file_refusal("nonsense", eight), "not a JSON object"));
  CHECK(contains(file_refusal("[]", ""), "not a JSON object"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", eight + eight),
                 "'b': overlaps"));
  CHECK(
      contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", std::string(20, '\0')),
               "'b': leaves a hole"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", eight),
                 "'b': lies outside"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[16,8]}})", eight + eight),
                 "'b': field 'data_offsets'"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[3],"data_offsets":[8,16]}})", eight + eight),
                 "'b': 'data_offsets' disagree"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[-2],"data_offsets":[8,16]}})", eight + eight),
                 "'b': field 'shape'"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[8,24]}})",
                              eight + eight + eight),
                 "'b': 'data_offsets' disagree"));
  CHECK(contains(file_refusal(two + R"("b":{"dtype":"F32","shape":[2]}})", eight), "'b': needs"));
  CHECK(contains(file_refusal(two + R"("b":7})", eight), "'b': needs"));
  CHECK(
      contains(file_refusal(two + R"("__metadata__":{"format":"pt"}})", eight + "x"), "1 bytes that no tensor names"));
}

TEST_CASE("S28: rope in all its spellings", "[model][load]") {
  const std::vector<float> plain = logits_with("tiny-gqa", {});
  const auto with_rope = [](const Json& scaling) {
    return logits_with("tiny-gqa", [&](Json& config) {
      config.erase("rope_parameters");
      config["rope_theta"] = 10000.0;
      config["rope_scaling"] = scaling;
    });
  };
  CHECK(with_rope(nullptr) == plain);
  CHECK(with_rope({{"rope_type", "default"}}) == plain);
  CHECK(logits_with("tiny-gqa", [](Json& config) { config.erase("rope_parameters"); }) == plain);
  const std::vector<float> linear = with_rope({{"type", "linear"}, {"factor", 2.0}});
  CHECK(linear != plain);
  CHECK(with_rope({{"rope_type", "linear"}, {"factor", 2.0}}) == linear);
  CHECK(logits_with("tiny-gqa", [](Json& config) {
          config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 10000.0}};
        }) == linear);

  const auto refusal = [](const Json& scaling) {
    return config_refusal("tiny-gqa", [&](Json& config) {
      config.erase("rope_parameters");
      config["rope_scaling"] = scaling;
    });
  };
  CHECK(contains(refusal({{"type", "foo"}, {"factor", 2.0}}), "'foo'"));
  CHECK(contains(refusal({{"rope_type", "longrope"}, {"factor", 2.0}}), "'short_factor' is missing"));
  CHECK(contains(refusal({{"rope_type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}}),
                 "needs 4 numbers in short_factor"));
  CHECK(contains(refusal({{"rope_type", "linear"}}), "'factor' is missing"));
  CHECK(contains(refusal({{"rope_type", "llama3"}, {"factor", 8.0}}), "'low_freq_factor' is missing"));
  CHECK(contains(refusal("linear"), "'rope_scaling'"));
  CHECK(contains(refusal({{"rope_type", "default"}, {"partial_rotary_factor", 0.2}}), "'partial_rotary_factor'"));
}

TEST_CASE("S28: missing fields get transformers' defaults, unknown names stop the start", "[model][load]") {
  const std::vector<float> plain = logits_with("tiny-mha-untied", {});
  CHECK(logits_with("tiny-mha-untied", [](Json& config) {
          config.erase("num_key_value_heads");
          config.erase("head_dim");
          config.erase("attention_bias");
          config.erase("mlp_bias");
          config.erase("hidden_act");
        }) == plain);
  CHECK(logits_with("tiny-mha-untied", [](Json& config) {
          config["num_key_value_heads"] = nullptr;
          config["head_dim"] = nullptr;
        }) == plain);

  const auto refusal = [](const std::function<void(Json&)>& edit) { return config_refusal("tiny-gqa", edit); };
  CHECK(contains(refusal([](Json& c) { c["architectures"] = {"FooForCausalLM"}; }), "'FooForCausalLM'"));
  CHECK(contains(refusal([](Json& c) { c.erase("architectures"); }), "'architectures'"));
  CHECK(contains(refusal([](Json& c) { c["hidden_act"] = "mish"; }), "'mish'"));
  for (const char* method : {"gptq", "awq"}) {
    CHECK(contains(refusal([&](Json& c) { c["quantization_config"] = {{"bits", 4}, {"quant_method", method}}; }),
                   "'" + std::string(method) + "'"));
  }
  CHECK(contains(refusal([](Json& c) { c.erase("hidden_size"); }), "'hidden_size' is missing"));
  CHECK(contains(refusal([](Json& c) { c["hidden_size"] = "big"; }), "'hidden_size'"));
  CHECK(contains(refusal([](Json& c) { c["num_hidden_layers"] = -1; }), "'num_hidden_layers'"));
  CHECK(contains(refusal([](Json& c) { c["num_hidden_layers"] = std::uint64_t{1} << 63U; }), "'num_hidden_layers'"));
  CHECK(contains(refusal([](Json& c) { c["num_key_value_heads"] = 4; }), "'num_key_value_heads'"));
  CHECK(contains(refusal([](Json& c) { c["attention_bias"] = true; }), "q_proj.bias"));
  CHECK(contains(refusal([](Json& c) { c["eos_token_id"] = "two"; }), "'eos_token_id'"));
  CHECK(contains(refusal([](Json& c) { c["num_hidden_layers"] = 3; }), "model.layers.2."));
}

TEST_CASE("Mistral without a sliding window is a Llama", "[model][load]") {
  const auto with_window = [](const Json& window) {
    return logits_with("tiny-gqa", [&](Json& config) {
      config["architectures"] = {"MistralForCausalLM"};
      config["sliding_window"] = window;
    });
  };
  const std::vector<float> plain = logits_with("tiny-gqa", {});
  CHECK(with_window(nullptr) == plain);
  CHECK(with_window(5) != plain);
}

TEST_CASE("Model information comes from the directory", "[model][load]") {
  const TemporaryDirectory directory;
  copy_model("tiny-gqa", directory.path(), [](Json& config) { config["eos_token_id"] = {2, 7}; });
  auto model = load(directory.path(), "fp16");
  CHECK(model->info().architecture == "LlamaForCausalLM");
  CHECK(model->info().layers == 2);
  CHECK(model->info().kv_heads == 2);
  CHECK(model->info().head_dim == 8);
  CHECK(model->info().vocab_size == 128);
  CHECK(model->info().max_positions == 512);
  CHECK(model->info().kv_dtype == "fp16");
  CHECK(model->info().device == "cpu");
  CHECK(model->info().end_tokens == std::vector<std::int32_t>{2, 7});
  CHECK(model->info().parameters == 46320);
  CHECK(model->info().weight_bytes == 46320 * 4);
  const std::string fingerprint = model->info().fingerprint;
  CHECK(fingerprint.size() == 64);
  CHECK(load(directory.path(), "fp32")->info().fingerprint == fingerprint);
  CHECK(load(directory.path(), "fp32", "cpu", "bf16")->info().fingerprint != fingerprint);

  std::ofstream(directory.path() / "generation_config.json") << R"({"eos_token_id": 9})";
  CHECK(load(directory.path())->info().end_tokens == std::vector<std::int32_t>{9});
  std::ofstream(directory.path() / "generation_config.json") << R"({"eos_token_id": [9, 4, 11]})";
  CHECK(load(directory.path())->info().end_tokens == std::vector<std::int32_t>{9, 4, 11});
  std::ofstream(directory.path() / "generation_config.json") << R"({"temperature": 0.6})";
  CHECK(load(directory.path())->info().end_tokens == std::vector<std::int32_t>{2, 7});

  // One bit of one weight.
  rewrite(directory.path() / "model.safetensors", [](Json&, std::string& data) { data[data.size() / 2] ^= 1; });
  CHECK(load(directory.path())->info().fingerprint != fingerprint);

  LoadOptions options;
  options.path = directory.path();
  options.device = "cpu";
  options.max_model_len = 100;
  CHECK(load_model(options)->info().max_positions == 100);
}

TEST_CASE("Unknown devices and number formats are refused", "[model][load]") {
  const std::filesystem::path directory = oracle_path("tiny-gqa");
  CHECK(contains(message_of([&] { load(directory, "fp32", "tpu"); }), "'tpu'"));
  CHECK(contains(message_of([&] { load(directory, "fp32", "cuda:x"); }), "'cuda:x'"));
  CHECK(contains(message_of([&] { load(directory, "int3"); }), "'int3'"));
  CHECK(contains(message_of([&] { load(directory, "fp32", "cpu", "int3"); }), "'int3'"));
  CHECK(contains(message_of([&] { load("/nowhere"); }), "/nowhere"));
  if (devices().size() == 1) {
    const std::string message = message_of([&] { load(directory, "fp32", "cuda"); });
    CHECK(contains(message, "--device cuda: "));
    CHECK(!contains(message, "\n"));
  }
}

TEST_CASE("Weights in 16 bits compute near fp32", "[model][load]") {
  for (const std::string& device : devices()) {
    const OracleCase oracle = read_oracle(oracle_path("tiny-gqa") / "oracle.safetensors", "plain");
    for (const auto& [weights, tolerance] : {std::pair("bf16", 6e-2), std::pair("fp16", 1e-2)}) {
      INFO(weights << " on " << device);
      const auto model = load(oracle_path("tiny-gqa"), "fp32", device, weights);
      CHECK(model->info().weights_dtype == weights);
      CHECK(difference(run_whole(*model, oracle.tokens), oracle.logits) < tolerance);
    }
  }
}

}  // namespace promptcached::model
