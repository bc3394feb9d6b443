// Scheduler: decides what the model computes next.
//
// Every step is one batch: the decode tokens of running sequences first, then chunks of prompts, then modules being
// encoded. Requests are admitted in the order they came, as the KV budget allows; one whose modules are being loaded or
// encoded holds up nobody. When a running sequence needs a block and none is left, the youngest gives its memory back
// and is computed anew later. Engine thread only; knows no model, so that tests drive it with a fake one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/metrics.h"
#include "core/engine/batch_builder.h"
#include "core/engine/module_encoder.h"
#include "core/engine/prefix_cache.h"
#include "core/engine/sequence.h"
#include "core/kv/module_pool.h"
#include "core/model/causal_lm.h"

namespace promptcached::engine {

class Scheduler {
 public:
  struct Options {
    std::int32_t max_batch_tokens = 512;
    std::int32_t max_running = 64;  // at most max_batch_tokens
    std::vector<std::int32_t> end_tokens;
  };
  // What one step asks of the model, and who gets the logits.
  struct Step {
    struct Part {
      std::shared_ptr<Sequence> sequence;
      std::int32_t rows = 0;
      std::int32_t logits_row = -1;  // -1: its prompt is not finished yet
    };
    model::ForwardBatch batch;
    std::vector<Part> parts;
    std::int32_t encode_rows = 0;
    bool empty() const { return batch.rows() == 0; }
  };

  Scheduler(const Options& options, kv::ModulePool& pool, ModuleEncoder& encoder, PrefixCache& prefixes,
            Metrics& metrics);

  void add(std::shared_ptr<Sequence> sequence);
  bool has_work() const { return !waiting_.empty() || !loading_.empty() || !running_.empty() || encoder_.has_work(); }
  std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size() + loading_.size()); }

  // Drops cancelled and late sequences, admits, and builds the next batch. An empty step with work left means that
  // memory was rearranged; call again.
  const Step& next();
  // The model ran the step.
  void complete(const model::Logits& logits);
  // The model failed on the step. One that concerned a single party fails it; the parties of others are run one by one
  // by the steps that follow, so that a fault of one never touches another.
  void failed(const Error& error);

  void fail_all(const Error& error);

  // What is computed before, and beside, a request that comes now.
  struct Load {
    std::int64_t rows = 0;           // of prompts that came before it
    std::int64_t keys = 0;           // that these look at
    std::int64_t decoding = 0;       // sequences; each has a row in every step
    std::int64_t decoding_keys = 0;  // that these look at in a step
  };
  Load load() const;
  std::int32_t max_batch_tokens() const { return options_.max_batch_tokens; }

  // After an empty step: nothing can be computed until a tier has done its part, and then the engine is woken.
  bool waits_for_tiers() const { return encoder_.tiers().busy(); }
  std::optional<Clock::time_point> next_deadline() const;  // of any sequence

 private:
  const Step& begin_step();
  void drop_ended();
  void admit();
  void start_loading(const std::shared_ptr<Sequence>& sequence);
  void run_loaded();
  void start_running(Sequence& sequence);
  void add_sequences(BatchBuilder& builder, bool decoding, std::int32_t budget);
  void add_rows(BatchBuilder& builder, const std::shared_ptr<Sequence>& sequence, std::int32_t rows);
  void add_encoding(BatchBuilder& builder, std::int32_t rows);
  void add_suspect(BatchBuilder& builder);
  bool make_room(const std::shared_ptr<Sequence>& sequence, std::int32_t tokens);
  void preempt(std::shared_ptr<Sequence> sequence);
  void resolve_standstill();
  static Result<SampledToken> sample(Sequence& sequence, std::span<const float> logits);
  void take_token(Sequence& sequence, std::span<const float> logits);
  void take_part(Sequence& sequence, std::size_t index, AcquiredModule module);
  void count_prefix(Sequence& sequence);
  void count_prompt(const Sequence& sequence);

  Options options_;
  kv::ModulePool& pool_;
  ModuleEncoder& encoder_;
  PrefixCache& prefixes_;
  Metrics& metrics_;
  std::deque<std::shared_ptr<Sequence>> waiting_;   // by arrival
  std::vector<std::shared_ptr<Sequence>> loading_;  // by arrival
  std::vector<std::shared_ptr<Sequence>> running_;  // by arrival
  std::deque<std::shared_ptr<Sequence>> suspects_;  // after a failed step: to be run alone
  bool suspect_encoder_ = false;
  Step step_;
  bool memory_short_ = false;  // a loaded sequence found no blocks: admit nobody before it
  Clock::time_point step_began_;
};

}  // namespace promptcached::engine
