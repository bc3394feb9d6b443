// GenerateRequest: a validated request. The wire form is api/wire; only this one reaches the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/schema_version.h"
#include "core/guide/grammar.h"
#include "core/pml/assembly_plan.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::engine {

using Clock = std::chrono::steady_clock;

// How the next token is chosen. Applied in this order: logit_bias and penalties, the grammar, temperature, top_k,
// top_p, min_p.
struct SamplingOptions {
  float temperature = 1.0F;         // 0 (or below 1e-4): greedy
  float top_p = 1.0F;               // (0, 1]
  std::int32_t top_k = 0;           // 0: off
  float min_p = 0.0F;               // [0, 1]: drop tokens below min_p times the best one's probability
  float repetition_penalty = 1.0F;  // > 0; over prompt and generated tokens, as in transformers
  float presence_penalty = 0.0F;    // [-2, 2]; over generated tokens, as OpenAI defines it
  float frequency_penalty = 0.0F;   // [-2, 2]
  std::optional<std::uint64_t> seed;
  std::map<TokenId, float> logit_bias;  // [-100, 100]
};

struct GenerateRequest {
  std::string id;                                // "gen-…", unique; in logs and events
  std::shared_ptr<const SchemaVersion> version;  // null: a prompt without modules (pml::plain_plan)
  pml::AssemblyPlan plan;                        // of version->schema
  SamplingOptions sampling;
  std::int32_t max_tokens = 256;  // >= 1
  std::vector<std::string> stop;  // none empty
  std::int32_t top_logprobs = 0;
  bool ignore_eos = false;                        // a grammar's end counts all the same
  std::shared_ptr<const guide::Grammar> grammar;  // what the answer must look like; null: anything goes
  bool bypass_cache = false;                      // compute everything for this request alone, under the same mask
  std::string cache_scope;                        // own tokens' KV is shared by requests of one scope; empty: everybody
  Clock::time_point arrival = Clock::now();       // when the request's bytes had arrived
  std::optional<Clock::time_point> deadline;
};

}  // namespace promptcached::engine
