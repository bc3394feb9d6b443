#include "core/engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

namespace promptcached::engine {
namespace {

bool arrived_before(const std::shared_ptr<Sequence>& a, const std::shared_ptr<Sequence>& b) {
  return a->request.arrival < b->request.arrival;
}

template <typename Container>
void insert_by_arrival(Container& sequences, const std::shared_ptr<Sequence>& sequence) {
  sequences.insert(std::upper_bound(sequences.begin(), sequences.end(), sequence, arrived_before), sequence);
}

// How many keys all rows of a step look at.
std::int64_t keys_of_step(const model::ForwardBatch& batch) {
  std::int64_t keys = 0;
  for (const model::RowRange& group : batch.causal_groups) {
    keys += keys_of(group.size(), 0);
  }
  for (const model::KvRead& read : batch.reads) {
    for (const model::RowRange& rows : read.rows) {
      keys += std::int64_t{read.count} * rows.size();
    }
  }
  return keys;
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Scheduler::Scheduler(const Options& options, kv::ModulePool& pool, ModuleEncoder& encoder, PrefixCache& prefixes,
                     Metrics& metrics)
    : options_(options), pool_(pool), encoder_(encoder), prefixes_(prefixes), metrics_(metrics) {
  options_.max_running = std::min(options_.max_running, options_.max_batch_tokens);
}

void Scheduler::add(std::shared_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }

const Scheduler::Step& Scheduler::next() {
  step_.parts.clear();
  step_.encode_rows = 0;
  BatchBuilder builder(step_.batch);
  const std::uint64_t tier_changes = encoder_.tiers().changes();
  drop_ended();
  const bool progress = encoder_.settle();
  if (!suspects_.empty() || suspect_encoder_) {
    add_suspect(builder);
    return begin_step();
  }
  memory_short_ = false;
  run_loaded();
  admit();

  add_sequences(builder, true, options_.max_batch_tokens);
  const std::int32_t left = options_.max_batch_tokens - builder.rows();
  // Prompts and the modules that other requests wait for share what decoding leaves.
  add_sequences(builder, false, encoder_.has_foreground_work() ? left - left / 4 : left);
  add_encoding(builder, options_.max_batch_tokens - builder.rows());
  // What a tier gave back while this was looked for may be what was missing.
  const bool tiers_rest = !encoder_.tiers().busy() && encoder_.tiers().changes() == tier_changes;
  if (step_.empty() && !progress && tiers_rest) {
    resolve_standstill();
  }
  return begin_step();
}

const Scheduler::Step& Scheduler::begin_step() {
  step_began_ = Clock::now();
  return step_;
}

// A client that has gone, or a deadline that has passed, ends a sequence wherever it stands.
void Scheduler::drop_ended() {
  const Clock::time_point now = Clock::now();
  const auto drop = [this, now](const std::shared_ptr<Sequence>& sequence) {
    if (sequence->stream->cancelled()) {
      prefixes_.publish_all(*sequence);
      sequence->finish(FinishReason::kCancelled);
    } else if (sequence->request.deadline.has_value() && *sequence->request.deadline <= now) {
      prefixes_.publish_all(*sequence);
      sequence->fail(make_error(ErrorCode::kTimeout, "the request took longer than --request-timeout allows"));
    }
    return sequence->state == SequenceState::kFinished;
  };
  std::erase_if(waiting_, drop);
  std::erase_if(loading_, drop);
  std::erase_if(running_, drop);
}

void Scheduler::admit() {
  const auto full = [this] {
    return static_cast<std::int32_t>(running_.size() + loading_.size()) >= options_.max_running;
  };
  while (!waiting_.empty() && !full() && !memory_short_ && !encoder_.foreground_starved()) {
    const std::shared_ptr<Sequence> sequence = waiting_.front();
    waiting_.pop_front();
    start_loading(sequence);
    insert_by_arrival(loading_, sequence);
    run_loaded();
  }
}

// Pins what is resident and asks for the rest.
void Scheduler::start_loading(const std::shared_ptr<Sequence>& sequence) {
  sequence->state = SequenceState::kLoading;
  sequence->admitted = Clock::now();
  sequence->claim = std::make_shared<int>(0);
  const std::vector<pml::CachedPart>& plan = sequence->request.plan.cached;
  sequence->missing_parts = static_cast<std::int32_t>(plan.size());
  if (!sequence->looked_up && !sequence->request.bypass_cache) {
    metrics_.module_lookups().add(static_cast<double>(plan.size()));
  }
  sequence->looked_up = true;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    ModuleEncoder::Want want;
    want.version = sequence->request.version;
    want.entry = plan[i].entry;
    want.private_kv = sequence->private_kv;
    want.owner = sequence->claim;
    want.ready = [this, weak = std::weak_ptr<Sequence>(sequence), i](Result<AcquiredModule> module) {
      const std::shared_ptr<Sequence> waiting = weak.lock();
      if (waiting == nullptr) {
        return;
      }
      if (!module.ok()) {
        waiting->fail(module.error());
        return;
      }
      take_part(*waiting, i, std::move(*module));
    };
    if (std::optional<kv::ModulePin> pin = encoder_.acquire(std::move(want))) {
      take_part(*sequence, i, {std::move(*pin), SourceLabel::kDevice});
    }
  }
}

// What a part was found in first is what counts: what a preempted sequence finds later is not what the client paid for.
void Scheduler::take_part(Sequence& sequence, std::size_t index, AcquiredModule module) {
  PinnedPart& part = sequence.parts[index];
  part.pin = std::move(module.pin);
  --sequence.missing_parts;
  if (part.found.has_value()) {
    return;
  }
  part.found = sequence.request.bypass_cache ? SourceLabel::kComputed : module.source;
  if (part.is_cached()) {
    metrics_.module_hits(tier_label(*part.found)).add();
  }
}

// Starts loaded sequences in the order they came, as far as there are blocks for their own tokens.
void Scheduler::run_loaded() {
  std::erase_if(loading_, [this](const std::shared_ptr<Sequence>& sequence) {
    if (sequence->state == SequenceState::kFinished) {
      return true;  // a module of its could not be encoded
    }
    if (sequence->missing_parts > 0 || memory_short_) {
      return false;
    }
    if (!prefixes_.find(sequence)) {
      memory_short_ = sequence->prefix.starved;
      return false;
    }
    // One block more than its tokens need, so that it does not give way again at once.
    const std::int32_t room = sequence->own_tokens() + pool_.block_tokens();
    bool has_room = sequence->cache.reserve(room).ok();
    if (!has_room && !sequence->prefix.held.empty()) {
      sequence->prefix.held.clear();  // a block to copy from is none that it needs
      has_room = sequence->cache.reserve(room).ok();
    }
    if (!has_room) {
      memory_short_ = true;
      return false;
    }
    start_running(*sequence);
    insert_by_arrival(running_, sequence);
    return true;
  });
}

void Scheduler::start_running(Sequence& sequence) {
  prefixes_.copy_head(sequence);
  count_prefix(sequence);
  const Clock::time_point now = Clock::now();
  sequence.load_time += now - sequence.admitted;
  sequence.loaded = now;
  sequence.state = SequenceState::kRunning;
}

// Once, as with modules: what a preempted sequence finds later is mostly what it computed itself.
void Scheduler::count_prefix(Sequence& sequence) {
  if (!prefixes_.serves(sequence) || sequence.prefix.found.has_value()) {
    return;
  }
  sequence.prefix.found = sequence.cache.size();
  metrics_.prefix_lookup_tokens().add(sequence.own_tokens() - 1);
  metrics_.prefix_hit_tokens().add(*sequence.prefix.found);
}

void Scheduler::add_sequences(BatchBuilder& builder, bool decoding, std::int32_t budget) {
  const std::vector<std::shared_ptr<Sequence>> candidates = running_;  // making room may take some out
  for (const std::shared_ptr<Sequence>& sequence : candidates) {
    if (sequence->state != SequenceState::kRunning || sequence->decoding() != decoding) {
      continue;
    }
    const std::int32_t rows = std::min(sequence->remaining(), budget);
    if (rows <= 0) {
      return;
    }
    if (make_room(sequence, sequence->cache.size() + rows)) {
      add_rows(builder, sequence, rows);
      budget -= rows;
    }
  }
}

// Blocks for the sequence's next rows; the youngest give theirs back for it. Sequences are served oldest first, so
// none that has rows in this step already is ever taken out.
bool Scheduler::make_room(const std::shared_ptr<Sequence>& sequence, std::int32_t tokens) {
  while (!sequence->cache.reserve(tokens).ok()) {
    if (pool_.expects_memory()) {
      return false;  // a module is on its way out: the sequence goes on when it has left
    }
    const std::shared_ptr<Sequence> youngest = running_.back();
    preempt(youngest);
    if (youngest == sequence) {
      return false;
    }
  }
  return true;
}

// By value: the caller's reference may be to an element of the lists it is taken from.
void Scheduler::preempt(std::shared_ptr<Sequence> sequence) {
  std::erase(running_, sequence);
  std::erase(loading_, sequence);
  prefixes_.publish_all(*sequence);
  sequence->give_back_memory();
  sequence->state = SequenceState::kWaiting;
  insert_by_arrival(waiting_, sequence);
}

void Scheduler::add_rows(BatchBuilder& builder, const std::shared_ptr<Sequence>& sequence, std::int32_t rows) {
  const std::int32_t begin = sequence->cache.size();
  const std::int32_t block_tokens = pool_.block_tokens();
  const auto block = [&](std::int32_t index) {
    return model::KvArray{sequence->cache.blocks()[static_cast<std::size_t>(index)].data(), block_tokens};
  };
  builder.begin_group();
  assert(!sequence->cache.blocks()[static_cast<std::size_t>(begin / block_tokens)].is_shared());
  for (std::int32_t i = begin; i < begin + rows; ++i) {
    const std::size_t token = static_cast<std::size_t>(i);
    builder.add_row(sequence->tokens[token], sequence->positions[token], block(i / block_tokens), i % block_tokens);
  }

  std::vector<PlacedRange> ranges;
  for (std::size_t i = 0; i < sequence->parts.size(); ++i) {
    const kv::ModulePin& pin = sequence->parts[i].pin;
    if (!pin) {
      continue;  // a module without text
    }
    const model::KvArray kv{pin.kv().data, pin.kv().total_tokens()};
    for (const pml::CachedRange& range : sequence->request.plan.cached[i].ranges) {
      ranges.push_back({kv, range.offset, range.count, range.start});
    }
  }
  // Its own earlier tokens, a range for each run of positions within a block.
  for (std::int32_t done = 0; done < begin;) {
    const std::int32_t start = sequence->positions[static_cast<std::size_t>(done)];
    const std::int32_t offset = done % block_tokens;
    std::int32_t count = 1;
    while (done + count < begin && offset + count < block_tokens &&
           sequence->positions[static_cast<std::size_t>(done + count)] == start + count) {
      ++count;
    }
    ranges.push_back({block(done / block_tokens), offset, count, start});
    done += count;
  }
  builder.show(ranges);

  Step::Part part{sequence, rows, -1};
  if (begin + rows == sequence->own_tokens()) {
    part.logits_row = builder.want_logits();
  }
  step_.parts.push_back(std::move(part));
}

void Scheduler::add_encoding(BatchBuilder& builder, std::int32_t rows) {
  const std::int32_t before = builder.rows();
  // Registration yields to sequences that are being answered.
  encoder_.fill(builder, rows, running_.empty() ? rows : rows / 4);
  step_.encode_rows = builder.rows() - before;
}

void Scheduler::complete(const model::Logits& logits) {
  const double took = seconds(Clock::now() - step_began_);
  metrics_.batch_size().observe(static_cast<double>(step_.parts.size()));
  metrics_.batch_tokens().observe(step_.batch.rows());
  encoder_.price().observe(step_.batch.rows(), keys_of_step(step_.batch), took);
  for (const Step::Part& part : step_.parts) {
    part.sequence->cache.append(part.rows);
    prefixes_.publish(*part.sequence);
    if (part.logits_row >= 0) {
      take_token(*part.sequence, {logits.row(part.logits_row), static_cast<std::size_t>(logits.vocab_size)});
    }
  }
  encoder_.step_done(took / step_.batch.rows());
  encoder_.settle();
  step_.parts.clear();  // nothing may keep a finished sequence
  std::erase_if(running_,
                [](const std::shared_ptr<Sequence>& sequence) { return sequence->state == SequenceState::kFinished; });
}

Result<SampledToken> Scheduler::sample(Sequence& sequence, std::span<const float> logits) {
  if (sequence.token_guide == nullptr) {
    return sequence.sampler.sample(logits);
  }
  const Result<std::span<const std::uint32_t>> mask = sequence.token_guide->mask();
  if (!mask.ok()) {
    return mask.error();
  }
  return sequence.sampler.sample(logits, *mask);
}

void Scheduler::take_token(Sequence& sequence, std::span<const float> logits) {
  Result<SampledToken> sampled = sample(sequence, logits);
  if (!sampled.ok()) {
    sequence.fail(sampled.error());
    return;
  }
  const bool is_first = sequence.first_token == Clock::time_point{};
  const Clock::time_point previous = sequence.last_token;
  const std::int32_t generated = sequence.generated;
  const std::optional<FinishReason> finished = sequence.accept(*sampled, options_.end_tokens);
  if (is_first) {
    count_prompt(sequence);
  } else {
    metrics_.inter_token_latency().observe(seconds(sequence.last_token - previous));
  }
  metrics_.generated_tokens().add(sequence.generated - generated);
  if (finished.has_value()) {
    metrics_.stage(StageLabel::kDecode).observe(seconds(sequence.last_token - sequence.first_token));
    prefixes_.publish_all(sequence);
    sequence.finish(*finished);
  }
}

// Once, with the first token: a prompt that never got this far, or was computed twice, counts no tokens for it.
void Scheduler::count_prompt(const Sequence& sequence) {
  const Usage usage = sequence.usage();
  std::int32_t of_modules = 0;
  for (std::size_t i = 0; i < sequence.parts.size(); ++i) {
    const std::int32_t tokens = sequence.request.plan.cached[i].token_count();
    metrics_.prompt_tokens(sequence.parts[i].source()).add(tokens);
    of_modules += tokens;
  }
  const std::int32_t of_prefix = sequence.prefix.found.value_or(0);
  metrics_.prompt_tokens(sequence.prefix.source).add(of_prefix);
  metrics_.prompt_tokens(SourceLabel::kComputed).add(usage.prompt_tokens - of_modules - of_prefix);
  metrics_.ttft_saved_seconds().add(encoder_.price().seconds(usage.cached_tokens));
  const double queued = seconds(sequence.loaded - sequence.request.arrival) - sequence.load_time.count();
  metrics_.request_queue().observe(queued);
  metrics_.stage(StageLabel::kQueue).observe(queued);
  metrics_.stage(StageLabel::kLoad).observe(sequence.load_time.count());
  metrics_.stage(StageLabel::kPrefill).observe(seconds(sequence.first_token - sequence.loaded));
}

void Scheduler::failed(const Error& error) {
  if (step_.parts.size() + (step_.encode_rows > 0 ? 1 : 0) > 1) {
    for (const Step::Part& part : step_.parts) {
      suspects_.push_back(part.sequence);
    }
    suspect_encoder_ = step_.encode_rows > 0;
    encoder_.step_abandoned();
    return;
  }
  for (const Step::Part& part : step_.parts) {
    part.sequence->fail(error);
  }
  if (step_.encode_rows > 0) {
    encoder_.step_failed(error);
  }
  drop_ended();
}

// After a step of several parties failed each is run alone, so that only the one at fault fails.
void Scheduler::add_suspect(BatchBuilder& builder) {
  while (!suspects_.empty() && step_.empty()) {
    const std::shared_ptr<Sequence> sequence = std::move(suspects_.front());
    suspects_.pop_front();
    if (sequence->state == SequenceState::kRunning) {
      add_rows(builder, sequence, std::min(sequence->remaining(), options_.max_batch_tokens));
    }
  }
  if (step_.empty() && suspect_encoder_) {
    suspect_encoder_ = false;
    add_encoding(builder, options_.max_batch_tokens);
  }
}

// Nothing can be computed although there is work: those who wait hold the memory that others need. The youngest gives
// way first; one that is alone and still finds no room never will.
void Scheduler::resolve_standstill() {
  if (!running_.empty()) {
    return;
  }
  if (loading_.size() > 1) {
    preempt(loading_.back());
  } else if (!loading_.empty() && loading_.front()->missing_parts == 0) {
    loading_.front()->fail(make_error(ErrorCode::kTooLargeForCache,
                                      "the request's own tokens do not fit the KV budget beside its modules and what "
                                      "is pinned; raise --kv-device-bytes or unpin modules"));
  } else {
    encoder_.fail_starved();
  }
}

Scheduler::Load Scheduler::load() const {
  Load load;
  const auto add = [&load](const std::shared_ptr<Sequence>& sequence) {
    const std::int64_t rows = sequence->remaining();
    const std::int64_t seen = sequence->request.plan.cached_tokens() + sequence->cache.size();
    (sequence->decoding() ? load.decoding : load.rows) += rows;
    (sequence->decoding() ? load.decoding_keys : load.keys) += keys_of(rows, seen);
  };
  std::for_each(waiting_.begin(), waiting_.end(), add);
  std::for_each(loading_.begin(), loading_.end(), add);
  std::for_each(running_.begin(), running_.end(), add);
  return load;
}

std::optional<Clock::time_point> Scheduler::next_deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&next](const std::shared_ptr<Sequence>& sequence) {
    const std::optional<Clock::time_point>& deadline = sequence->request.deadline;
    if (deadline.has_value() && (!next.has_value() || *deadline < *next)) {
      next = deadline;
    }
  };
  std::for_each(waiting_.begin(), waiting_.end(), consider);
  std::for_each(loading_.begin(), loading_.end(), consider);
  std::for_each(running_.begin(), running_.end(), consider);
  return next;
}

void Scheduler::fail_all(const Error& error) {
  for (auto* sequences : {&loading_, &running_}) {
    for (const std::shared_ptr<Sequence>& sequence : *sequences) {
      sequence->fail(error);
    }
    sequences->clear();
  }
  for (const std::shared_ptr<Sequence>& sequence : waiting_) {
    sequence->fail(error);
  }
  waiting_.clear();
  encoder_.fail_all(error);
}

}  // namespace promptcached::engine
