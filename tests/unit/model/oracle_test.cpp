// The decoder and the direct pass against transformers' logits, for every kind of tiny model and for the default one.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/parity/direct_pass.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

constexpr double kTolerance = 1e-4;  // relative to the largest logit

// Runs of tokens, in order, such that each token sees an earlier run wholly or not at all, and its own run up to
// itself.
std::vector<RowRange> runs_of(const OracleCase& oracle) {
  const auto n = static_cast<std::int32_t>(oracle.tokens.size());
  const auto sees = [&](std::int32_t row, std::int32_t column) {
    return oracle.mask[static_cast<std::size_t>(row) * n + column] != 0;
  };
  std::vector<RowRange> runs = {{0, 1}};
  for (std::int32_t token = 1; token < n; ++token) {
    bool goes_on = true;
    for (std::int32_t column = 0; column < token; ++column) {
      goes_on = goes_on && sees(token, column) == sees(token - 1, column);
    }
    for (std::int32_t row = token; row < n; ++row) {
      goes_on = goes_on && sees(row, token) == sees(row, token - 1);
    }
    if (goes_on) {
      runs.back().end = token + 1;
    } else {
      runs.push_back({token, token + 1});
    }
  }
  return runs;
}

// Computes the case run by run, each stored to KV of its own and read by those that see it.
std::vector<float> run_in_segments(CausalLm& model, const OracleCase& oracle) {
  const auto n = static_cast<std::int32_t>(oracle.tokens.size());
  const std::vector<RowRange> runs = runs_of(oracle);
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<float> logits;
  for (const RowRange& tokens : runs) {
    BatchBuilder builder;
    const RowRange rows = builder.group(slice(oracle.tokens, tokens.begin, tokens.end),
                                        slice(oracle.positions, tokens.begin, tokens.end));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (oracle.mask[static_cast<std::size_t>(tokens.begin) * n + runs[i].begin] != 0) {
        builder.read(*blocks[i], rows);
      }
    }
    blocks.push_back(std::make_unique<Block>(model, tokens.size()));
    builder.write(*blocks.back(), 0, rows);
    builder.want(rows);
    const std::vector<float> part = run(model, builder.batch());
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

std::vector<float> pick(const std::vector<float>& logits, const std::vector<std::int32_t>& rows, std::int32_t vocab) {
  std::vector<float> picked;
  for (const std::int32_t row : rows) {
    picked.insert(picked.end(), logits.begin() + std::ptrdiff_t{row} * vocab,
                  logits.begin() + std::ptrdiff_t{row + 1} * vocab);
  }
  return picked;
}

}  // namespace

TEST_CASE("Tiny models give transformers' logits", "[model][oracle]") {
  REQUIRE(tiny_models().size() >= 12);
  for (const std::string& device : devices()) {
    for (const std::string& name : tiny_models()) {
      for (const std::string kind : {"plain", "holes"}) {
        DYNAMIC_SECTION(name << ", " << kind << ", " << device) {
          const std::filesystem::path directory = oracle_path(name);
          const OracleCase oracle = read_oracle(directory / "oracle.safetensors", kind);
          const auto model = load(directory, "fp32", device);
          CHECK(difference(run_in_segments(*model, oracle), oracle.logits) < kTolerance);
          if (kind == "plain") {
            CHECK(difference(run_whole(*model, oracle.tokens), oracle.logits) < kTolerance);
          }
        }
      }
    }
  }
}

TEST_CASE("Tiny GGUF files give the logits of the models they were made from", "[model][oracle][gguf]") {
  const std::filesystem::path directory =
      std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests" / "data" / "gguf" / "models";
  for (const std::string name : {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"}) {
    for (const std::string kind : {"plain", "holes"}) {
      DYNAMIC_SECTION(name << ", " << kind) {
        const OracleCase oracle = read_oracle(directory / (name + ".safetensors"), kind);
        const auto model = load(directory / (name + ".gguf"));
        CHECK(difference(run_in_segments(*model, oracle), oracle.logits) < kTolerance);
      }
    }
  }
}

TEST_CASE("The direct pass gives transformers' logits", "[model][oracle]") {
  for (const std::string& name : tiny_models()) {
    for (const std::string kind : {"plain", "holes"}) {
      DYNAMIC_SECTION(name << ", " << kind) {
        const std::filesystem::path directory = oracle_path(name);
        const OracleCase oracle = read_oracle(directory / "oracle.safetensors", kind);
        const parity::DirectPass direct(directory);
        CHECK(difference(direct.logits({oracle.tokens, oracle.positions, oracle.mask, {}}), oracle.logits) <
              kTolerance);
      }
    }
  }
}

TEST_CASE("The default model gives transformers' logits", "[model][oracle][default-model]") {
  const std::filesystem::path directory = default_model();
  if (directory.empty()) {
    return;
  }
  const std::filesystem::path file = oracle_path("smollm2-135m-instruct.safetensors");
  const auto model = load(directory);
  const std::int32_t vocab = model->info().vocab_size;
  const parity::DirectPass direct(directory);
  for (const std::string kind : {"short", "medium", "long", "chat", "holes", "modules"}) {
    INFO("case " << kind);
    const OracleCase oracle = read_oracle(file, kind);
    const std::vector<float> expected_last = oracle.last_logits;
    const std::vector<float> segmented = run_in_segments(*model, oracle);
    CHECK(difference(tail(segmented, vocab), expected_last) < kTolerance);
    const std::vector<float> directly = direct.logits({oracle.tokens, oracle.positions, oracle.mask, oracle.rows});
    CHECK(difference(tail(directly, vocab), expected_last) < kTolerance);
    // Every row the oracle knows: the logits of its 64 best tokens.
    const std::vector<float> rows = pick(segmented, oracle.rows, vocab);
    std::vector<float> found;
    for (std::size_t i = 0; i < oracle.top_ids.size(); ++i) {
      found.push_back(rows[i / 64 * vocab + oracle.top_ids[i]]);
    }
    CHECK(difference(found, oracle.top_logits) < kTolerance);
  }
}

TEST_CASE("The default model's greedy text is transformers'", "[model][oracle][default-model]") {
  const std::filesystem::path directory = default_model();
  if (directory.empty()) {
    return;
  }
  constexpr float kNearTie = 0.15F;
  const std::filesystem::path file = oracle_path("smollm2-135m-instruct.safetensors");
  const std::vector<std::pair<std::string, std::string>> formats = {
      {"fp32", "fp32"}, {"fp32", "fp16"}, {"int8", "fp16"}};
  for (const auto& [weights, kv_dtype] : formats) {
    const auto model = load(directory, kv_dtype, "cpu", weights);
    for (const std::string kind : {"short", "chat", "holes"}) {
      INFO("case " << kind << ", weights in " << weights << ", KV in " << kv_dtype);
      const OracleCase oracle = read_oracle(file, kind);
      const auto n = static_cast<std::int32_t>(oracle.tokens.size());
      const Block block(*model, n + static_cast<std::int32_t>(oracle.greedy_ids.size()));
      BatchBuilder prompt;
      const RowRange rows = prompt.group(oracle.tokens, oracle.positions);
      prompt.write(block, 0, rows);
      prompt.want({rows.end - 1, rows.end});
      std::vector<float> logits = run(*model, prompt.batch());
      std::int32_t position = oracle.positions.back();
      for (std::size_t i = 0; i < oracle.greedy_ids.size(); ++i) {
        const auto best = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        INFO("token " << i << ", gap " << oracle.greedy_gaps[i]);
        CHECK((best == oracle.greedy_ids[i] || oracle.greedy_gaps[i] < kNearTie));
        // On along transformers' text in any case.
        BatchBuilder step;
        const RowRange row = step.group({static_cast<std::int32_t>(oracle.greedy_ids[i])}, {++position});
        const auto stored = n + static_cast<std::int32_t>(i);
        step.read(block, 0, stored, {row});
        step.write(block, stored, row);
        step.want(row);
        logits = run(*model, step.batch());
      }
    }
  }
}

}  // namespace promptcached::model
