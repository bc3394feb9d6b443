#include "core/model/model_plan.h"

#include <fstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

ModelConfig published(const std::string& name) {
  return read_model_config(std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests" / "data" / "configs" / name);
}

std::int64_t kv_values_per_token(const ModelConfig& config) {
  return 2 * config.layers * config.kv_heads * config.head_dim;
}

struct Known {
  const char* name;
  std::int64_t parameters;
  std::int64_t kv_bytes;  // a token's, in 16 bits
};

// Parameters as transformers counts them (tests/tools/count_parameters.py).
const std::vector<Known> kPublished = {
    {"bloom-7b1", 7'069'016'064, 491'520},       {"codellama-7b", 6'738'546'688, 524'288},
    {"falcon-40b", 41'303'293'952, 122'880},     {"falcon-7b", 6'921'720'704, 8'192},
    {"gemma-2-9b", 9'241'705'984, 344'064},      {"gemma-3-270m", 268'098'176, 18'432},
    {"gpt-neox-20b", 20'554'567'680, 1'081'344}, {"gpt2", 124'439'808, 36'864},
    {"llama-2-13b", 13'015'864'320, 819'200},    {"llama-2-70b", 68'976'648'192, 327'680},
    {"llama-2-7b", 6'738'415'616, 524'288},      {"llama-3.1-8b", 8'030'261'248, 131'072},
    {"mistral-7b-v0.1", 7'241'732'096, 131'072}, {"mpt-30b", 29'957'200'896, 1'376'256},
    {"mpt-7b", 6'649'286'656, 524'288},          {"opt-13b", 12'853'473'280, 819'200},
    {"phi-3-mini-4k", 3'821'079'552, 393'216},   {"qwen2.5-7b", 7'615'616'512, 57'344},
    {"qwen3-8b", 8'190'735'360, 147'456},
};

}  // namespace

TEST_CASE("published models have the parameters and the KV they are known for", "[model][plan]") {
  for (const Known& known : kPublished) {
    CAPTURE(known.name);
    const ModelConfig config = published(known.name);
    CHECK(count_parameters(config).all == known.parameters);
    CHECK(2 * kv_values_per_token(config) == known.kv_bytes);
  }
}

// Of every family and every variant there is.
TEST_CASE("parameters and positions are those of the loaded model", "[model][plan]") {
  for (const std::string& name : tiny_models()) {
    CAPTURE(name);
    const ModelConfig config = read_model_config(oracle_path(name));
    const std::unique_ptr<CausalLm> model = load(oracle_path(name));
    CHECK(count_parameters(config).all == model->info().parameters);
    CHECK(usable_positions(config, 0) == model->info().max_positions);
  }
}

TEST_CASE("texts are as long as the model allows, or as asked for", "[model][plan]") {
  const ModelConfig config = published("llama-2-7b");
  CHECK(usable_positions(config, 0) == 4096);
  CHECK(usable_positions(config, 1000) == 1000);
  CHECK(usable_positions(config, 10'000) == 4096);
  ModelConfig dynamic = config;
  dynamic.ropes.front() = {.kind = RopeKind::kDynamic, .factor = 2.0};
  CHECK(usable_positions(dynamic, 0) == 4096);
  CHECK(usable_positions(dynamic, 10'000) == 8192);
  CHECK_THROWS(usable_positions(config, -1));
}

TEST_CASE("a first token's arithmetic", "[model][plan]") {
  const ModelConfig config = published("llama-2-7b");
  const FlopCount count(config);
  // All weights but the embedding, the head (counted apart) and the 65 norms.
  const double products = 6'738'415'616.0 - 2 * 32'000 * 4'096.0 - 65 * 4'096.0;
  CHECK(count.token(1) == 2 * products + 4.0 * 32 * 4'096);
  CHECK(count.token(1000) - count.token(1) == 4.0 * 32 * 4'096 * 999);
  CHECK(count.head() == 2.0 * 32'000 * 4'096);
  double sum = count.head();
  for (std::int64_t context = 1; context <= 1000; ++context) {
    sum += count.token(context);
  }
  CHECK(count.prompt(1000, 0) == sum);
  CHECK(count.prompt(1000, 999) == count.token(1000) + count.head());
  CHECK(count.prompt(1000, 0) + count.head() == count.prompt(976, 0) + count.prompt(1000, 976));
}

TEST_CASE("a sliding window bounds what a token sees", "[model][plan]") {
  const ModelConfig config = published("gemma-3-270m");  // windows of 512 in 15 of 18 layers
  const FlopCount count(config);
  const double pair = 4.0 * 4 * 256;
  CHECK(count.token(512) - count.token(511) == 18 * pair);
  CHECK(count.token(513) - count.token(512) == 3 * pair);
  double sum = count.head();
  for (std::int64_t context = 1; context <= 2000; ++context) {
    sum += count.token(context);
  }
  CHECK(count.prompt(2000, 0) == sum);
}

TEST_CASE("the paper's formulas", "[model][plan]") {
  const double d = 4096;
  CHECK(FlopCount(published("llama-2-7b")).paper_token(3000) == 6 * d * d + 4 * 3000 * d);
  // 32 query heads, 8 KV heads: keys and values take a quarter each.
  CHECK(FlopCount(published("llama-3.1-8b")).paper_token(3000) == 3 * d * d + 4 * 3000 * d);
}

TEST_CASE("sizes no model has are refused, not wrapped around", "[model][plan]") {
  ModelConfig config = published("llama-2-7b");
  config.vocab_size = config.hidden_size = config.intermediate_size = std::int64_t{1} << 30;
  CHECK_THROWS(count_parameters(config));
}

}  // namespace promptcached::model
