#include "server/dry_run.h"

#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/catch.h"

namespace promptcached::server {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

Config published(const std::string& name) {
  Config config;
  config.model.path = std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests" / "data" / "configs" / name;
  return config;
}

// The line that begins with `label`, with single spaces.
std::string line(const std::string& page, const std::string& label) {
  const std::size_t begin = ("\n" + page).find("\n" + label);
  if (begin == std::string::npos) {
    return "there is no line '" + label + "' in:\n" + page;
  }
  std::string text;
  for (const char c : page.substr(begin, page.find('\n', begin) - begin)) {
    if (c != ' ' || (!text.empty() && text.back() != ' ')) {
      text += c;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("a dry run tells what a model takes", "[server][dry_run]") {
  Config config = published("llama-2-7b");
  config.model.device = "cpu";
  config.model.kv_dtype = "fp16";
  config.engine.kv_device_bytes = 8 * kGiB;
  const std::string page = dry_run(config, 0);
  CHECK(line(page, "architecture") == "architecture LlamaForCausalLM");
  CHECK(line(page, "layers") == "layers 32, hidden size 4096, MLP 11008 (gated), vocabulary 32000");
  CHECK(line(page, "attention") == "attention 32 heads of 128, 32 KV heads (multi-head)");
  CHECK(line(page, "positions") == "positions 4,096 (the model's)");
  CHECK(line(page, "device") == "device cpu");
  CHECK(line(page, "parameters") == "parameters 6,738,415,616");
  CHECK(line(page, "weights") == "weights 6.54 GiB as int8 (auto, on the CPU)");
  CHECK(line(page, "KV per token") == "KV per token 524,288 bytes (0.50 MiB) as fp16 (--kv-dtype)");
  CHECK(line(page, "  device") == "device 8.00 GiB 16,384 --kv-device-bytes");
  // 2 x 6,476,005,376 weights, 4 x 32 layers x 4096 for each of 500,500 pairs, and 0.26 G for the head.
  CHECK(line(page, "  1,000 tokens") == "1,000 tokens 13.21 T 323.55 G 40.8 13.48 G");
  CHECK(line(page, "  4,000 tokens").starts_with("4,000 tokens 56.0"));
  CHECK(line(page, "  4,096 tokens").starts_with("4,096 tokens "));
}

TEST_CASE("a dry run counts shared KV heads once", "[server][dry_run]") {
  const auto kv = [](const std::string& name) {
    Config config = published(name);
    config.model.kv_dtype = "fp16";
    return line(dry_run(config, 0), "KV per token");
  };
  CHECK(kv("llama-2-13b") == "KV per token 819,200 bytes (0.78 MiB) as fp16 (--kv-dtype)");
  CHECK(kv("llama-2-70b") == "KV per token 327,680 bytes (0.31 MiB) as fp16 (--kv-dtype)");
  CHECK(kv("falcon-40b") == "KV per token 122,880 bytes (0.12 MiB) as fp16 (--kv-dtype)");
  CHECK(kv("falcon-7b") == "KV per token 8,192 bytes (0.0078 MiB) as fp16 (--kv-dtype)");
}

TEST_CASE("a dry run says where each number comes from", "[server][dry_run]") {
  Config config = published("mistral-7b-v0.1");
  config.model.max_model_len = 2000;
  const std::string automatic = dry_run(config, 48 * kGiB);
  CHECK(line(automatic, "device") == "device cpu (auto: a dry run looks for no other)");
  CHECK(line(automatic, "positions") == "positions 2,000 (--max-model-len)");
  CHECK(line(automatic, "sliding window") == "sliding window 4,096 positions in 32 layers");
  // (48 GiB - 17 / 16 x 7,110,393,856 weights of matrices, the table of embeddings left out) / 2, and 128 KiB a token.
  CHECK(line(automatic, "  device") ==
        "device 20.48 GiB 167,784 half of what the weights leave of 48.00 GiB free here");
  CHECK(line(automatic, "  2,000 tokens").starts_with("2,000 tokens "));
  CHECK(automatic.find("4,000 tokens") == std::string::npos);

  config.model.device = "cuda:1";
  config.model.weights = "fp16";
  const std::string cuda = dry_run(config, 48 * kGiB);
  CHECK(line(cuda, "weights") == "weights 13.49 GiB as fp16 (--weights)");
  CHECK(line(cuda, "KV per token") == "KV per token 131,072 bytes (0.12 MiB) as bf16 (auto, on CUDA)");
  CHECK(line(cuda, "  device").starts_with("device not known yet - half of what is free on the device"));

  config.model.device = "cpu";
  config.model.weights = "auto";
  CHECK(line(dry_run(config, 4 * kGiB), "  device").starts_with("device 0 bytes 0 "));
}

TEST_CASE("a dry run of texts shorter than a question", "[server][dry_run]") {
  Config config = published("gpt2");
  config.model.max_model_len = 10;
  const std::string page = dry_run(config, kGiB);
  CHECK(line(page, "  10 tokens").find(" 1.0 ") != std::string::npos);
}

TEST_CASE("a dry run needs a config.json it understands", "[server][dry_run]") {
  CHECK_THROWS_AS(dry_run(published("no-such-model"), kGiB), std::runtime_error);
  Config config;
  config.model.path = std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests" / "data" / "configs";
  CHECK_THROWS_AS(dry_run(config, kGiB), std::runtime_error);
}

}  // namespace promptcached::server
