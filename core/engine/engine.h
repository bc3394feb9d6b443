// Engine: one model, its KV, and the thread that runs both.
//
// HTTP threads call submit() and schemas(); everything that touches the model or hands out KV happens on the engine
// thread (core/engine/scheduler.h). docs/request-trace.md walks through one request.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/engine/forecast.h"
#include "core/engine/generate_request.h"
#include "core/engine/kv_storage.h"
#include "core/engine/schema_journal.h"
#include "core/engine/schema_registry.h"
#include "core/engine/token_stream.h"
#include "core/guide/grammar_compiler.h"
#include "core/kv/module_pool.h"
#include "core/kv/tier_mover.h"
#include "core/model/causal_lm.h"
#include "core/pml/schema.h"

namespace promptcached::engine {

struct EngineOptions {
  std::size_t kv_device_bytes = 0;      // 0: half of the device memory that is free after loading
  TierOptions tiers;                    // where KV goes that the device has no room for
  std::int32_t block_tokens = 64;       // size of a sequence's own KV blocks
  std::int32_t max_batch_tokens = 512;  // rows of one step
  std::int32_t max_running = 64;        // sequences decoded together
  std::int32_t max_queue = 256;         // requests waiting beyond those
  bool poison_kv = false;               // overwrite freed KV (debugging)
  bool check_kv = false;                // prove the pool's integrity whenever the engine falls idle (debugging)
  bool prefix_cache = true;             // keep sequences' own KV for those that begin alike
  kv::EvictionKind kv_eviction = kv::EvictionKind::kCost;
  pml::Limits pml_limits;
  std::shared_ptr<SchemaJournal> schema_journal;  // null: registered schemas live as long as the engine
};

// What GET /cache and /metrics show of the engine.
struct EngineStatus {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  bool draining = false;
};

class Engine {
 public:
  // Takes the model; `metrics` must outlive the engine. The thread starts at once. Throws std::runtime_error when a
  // tier cannot be had as the options say.
  static std::unique_ptr<Engine> create(const EngineOptions& options, std::unique_ptr<model::CausalLm> model,
                                        pml::ModelText text, Metrics& metrics);
  virtual ~Engine() = default;  // stops at once: whatever still runs ends with kDraining

  // Hands a request to the engine thread. Errors: kQueueFull, kDraining, kTooLargeForCache (its modules and tokens
  // could never fit the KV budget).
  virtual Result<std::shared_ptr<TokenStream>> submit(GenerateRequest request) = 0;

  // What would become of it, had it been submitted; nothing is computed or moved. Waits for the step in progress.
  // Errors: kDraining, kQueueFull.
  virtual Result<Forecast> forecast(GenerateRequest request) = 0;

  // For the grammars of requests.
  virtual guide::GrammarCompiler& grammars() = 0;

  virtual SchemaRegistry& schemas() = 0;
  virtual kv::ModulePool& pool() = 0;
  virtual kv::TierMover& tiers() = 0;
  virtual const pml::ModelText& text() const = 0;
  virtual const model::ModelInfo& model_info() const = 0;
  virtual EngineStatus status() const = 0;

  // Refuses new work (kDraining) and waits until what runs has ended, at most `grace`; the rest is then ended with a
  // kDraining error. Returns true when all ended by itself. Idempotent, from any thread.
  virtual bool drain(std::chrono::milliseconds grace) = 0;
};

}  // namespace promptcached::engine
