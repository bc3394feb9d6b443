#include "core/engine/module_encoder.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace promptcached::engine {
ModuleEncoder::ModuleEncoder(kv::ModulePool& pool, kv::TierMover& tiers, Metrics& metrics, RetentionLookup retention)
    : pool_(pool), tiers_(tiers), metrics_(metrics), retention_(std::move(retention)) {}

ModuleEncoder::~ModuleEncoder() = default;

std::optional<kv::ModulePin> ModuleEncoder::acquire(Want want) {
  if (kept_tokens(*want.version->schema, want.entry) == 0) {
    return kv::ModulePin();
  }
  if (want.private_kv != nullptr) {
    const auto found = want.private_kv->entries.find(want.entry);
    if (found != want.private_kv->entries.end()) {
      return found->second.duplicate();
    }
  } else if (std::optional<kv::ModulePin> pin = pool_.pin(want.version->keys[static_cast<std::size_t>(want.entry)])) {
    return pin;
  }
  std::shared_ptr<EncodeJob> job = find_job(want);
  if (job == nullptr) {
    job = add_job(want);
  }
  job->background = job->background && want.background;
  // A job that computes the same KV for another entry, of whatever schema, knows it by that entry's index.
  const std::vector<pml::EntryIndex>& entries = job->encoding().entries;
  const bool is_own =
      job->version == want.version && std::find(entries.begin(), entries.end(), want.entry) != entries.end();
  const pml::EntryIndex entry = is_own ? want.entry : entries.front();
  job->waiters.push_back({entry, std::move(want.owner), std::move(want.ready)});
  return std::nullopt;
}

// Single flight: entries of different schemas with one key are one job.
std::shared_ptr<EncodeJob> ModuleEncoder::find_job(const Want& want) const {
  const kv::ModuleKey& key = want.version->keys[static_cast<std::size_t>(want.entry)];
  const int pass = want.version->schema->entries[static_cast<std::size_t>(want.entry)].pass;
  for (const std::shared_ptr<EncodeJob>& job : jobs_) {
    if (job->private_kv != want.private_kv) {
      continue;
    }
    if (job->version == want.version && job->pass == pass) {
      return job;
    }
    // Another schema's job is as good when it computes just this entry.
    const pml::EncodingPass& encoding = job->encoding();
    if (want.private_kv == nullptr && encoding.entries.size() == 1 &&
        want.version->schema->passes[static_cast<std::size_t>(pass)].entries.size() == 1 &&
        job->version->keys[static_cast<std::size_t>(encoding.entries.front())] == key) {
      return job;
    }
  }
  return nullptr;
}

std::shared_ptr<EncodeJob> ModuleEncoder::add_job(const Want& want) {
  auto job = std::make_shared<EncodeJob>();
  job->self = job;
  job->version = want.version;
  job->pass = want.version->schema->entries[static_cast<std::size_t>(want.entry)].pass;
  job->private_kv = want.private_kv;
  job->background = want.background;
  jobs_.push_back(job);
  return job;
}

void ModuleEncoder::fill(BatchBuilder& builder, std::int32_t rows, std::int32_t background_rows) {
  drop_unwanted();
  in_step_.clear();
  starved_ = false;
  begin_loads();
  for (const bool background : {false, true}) {
    std::int32_t budget = background ? std::min(rows, background_rows) : rows;
    // Activation may put further jobs in line; they are met by the same walk.
    for (auto it = jobs_.begin(); it != jobs_.end() && budget > 0; ++it) {
      EncodeJob& job = **it;
      // While one job waits for memory no other may take any, but those that have theirs go on.
      if (job.background != background || (starved_ && !job.active)) {
        continue;
      }
      const Activation activation = activate(job);
      starved_ = starved_ || activation == Activation::kNoMemory;
      if (activation != Activation::kActive || (one_at_a_time_ && !in_step_.empty())) {
        continue;
      }
      const std::int32_t count = add_rows(builder, job, budget);
      in_step_.push_back(*it);
      budget -= count;
      rows -= count;
    }
  }
}

std::int32_t ModuleEncoder::add_rows(BatchBuilder& builder, EncodeJob& job, std::int32_t budget) {
  job.step_rows = std::min<std::size_t>(job.rows.size() - job.done_rows, static_cast<std::size_t>(budget));
  builder.begin_group();
  for (std::size_t i = job.done_rows; i < job.done_rows + job.step_rows; ++i) {
    const EncodeJob::Row& row = job.rows[i];
    builder.add_row(row.token, row.position, row.kv, row.offset);
  }
  builder.show(job.visible_ranges());
  return static_cast<std::int32_t>(job.step_rows);
}

ModuleEncoder::Activation ModuleEncoder::activate(EncodeJob& job) {
  if (job.failure.has_value()) {
    return Activation::kGone;
  }
  if (job.active) {
    return job.finished() ? Activation::kWaiting : Activation::kActive;
  }
  if (job.pending > 0) {
    return Activation::kWaiting;
  }
  if (const Activation found = seek(job); found != Activation::kActive) {
    return found;
  }
  if (const Activation context = gather_context(job); context != Activation::kActive) {
    return context;
  }
  if (const Activation outputs = gather_outputs(job); outputs != Activation::kActive) {
    return outputs;
  }
  job.list_rows();
  job.active = true;
  job.began = Clock::now();
  return job.rows.empty() ? Activation::kWaiting : Activation::kActive;
}

// Loading takes no part of a step: it begins however many rows are left for encoding.
void ModuleEncoder::begin_loads() {
  for (const bool background : {false, true}) {
    for (const std::shared_ptr<EncodeJob>& job : jobs_) {
      if (job->background == background && !job->active && job->pending == 0 && !starved_) {
        starved_ = seek(*job) == Activation::kNoMemory;
      }
    }
  }
}

// What is waited for and lies in a lower tier is brought up. kActive: all has been looked for, and what is still
// missing has to be computed.
ModuleEncoder::Activation ModuleEncoder::seek(EncodeJob& job) {
  if (!tiers_.has_tiers() || job.private_kv != nullptr || job.failure.has_value()) {
    return Activation::kActive;
  }
  for (const EncodeJob::Waiter& waiter : job.waiters) {
    if (job.sought.contains(waiter.entry)) {
      continue;
    }
    if (const Activation entry = seek_entry(job, waiter.entry); entry != Activation::kActive) {
      return entry;
    }
  }
  return job.loading > 0 ? Activation::kWaiting : Activation::kActive;
}

ModuleEncoder::Activation ModuleEncoder::seek_entry(EncodeJob& job, pml::EntryIndex entry) {
  const kv::ModuleKey& key = job.version->keys[static_cast<std::size_t>(entry)];
  const std::int32_t kept = kept_tokens(job.schema(), entry);
  const std::int32_t tokens = job.module_of(entry).token_count();
  const std::optional<kv::Retention> retention =
      job.module_of(entry).cache ? retention_(key) : std::nullopt;  // nullopt: nobody keeps it
  const bool is_known = !retention.has_value() || pool_.contains(key);
  if (is_known || !tiers_.worth_loading(key, pool_.geometry().bytes(kept), price_.seconds(kept))) {
    job.sought.insert(entry);
    return Activation::kActive;
  }
  Result<kv::ModulePin> pin = pool_.create(key, tokens, kept - tokens, *retention);
  if (!pin.ok() && pin.error().code == ErrorCode::kQueueFull) {
    return Activation::kNoMemory;
  }
  job.sought.insert(entry);
  if (pin.ok()) {  // else another job has it under way, or it never fits: what follows deals with either
    ++job.loading;
    tiers_.load(std::move(*pin), !job.background,
                [this, weak = job.self, entry](kv::TierMover::Loaded found) { loaded(weak, entry, std::move(found)); });
  }
  return Activation::kActive;
}

// What was loaded stays, also when nobody waits for it any more.
void ModuleEncoder::loaded(const std::weak_ptr<EncodeJob>& weak, pml::EntryIndex entry, kv::TierMover::Loaded loaded) {
  if (loaded.tier.has_value()) {
    pool_.publish(loaded.pin, loaded.worth);
  }
  const std::shared_ptr<EncodeJob> job = weak.lock();
  if (job == nullptr) {
    return;
  }
  --job->loading;
  if (loaded.tier.has_value()) {
    EncodePart part;
    part.entry = entry;
    part.source = source_label(*loaded.tier);
    EncodeJob::attach(part, std::move(loaded.pin));
    job->outputs.push_back(std::move(part));
  }
  if (job->loading == 0 && job->satisfied()) {
    job->active = true;  // with nothing left to compute
  }
}

// Asks for an entry this job needs; kActive when it is attached already.
ModuleEncoder::Activation ModuleEncoder::want_for_job(EncodeJob& job, pml::EntryIndex entry) {
  Want want;
  want.version = job.version;
  want.entry = entry;
  want.private_kv = job.private_kv;
  want.background = job.background;
  want.owner = job.self;
  want.ready = [weak = job.self, entry](Result<AcquiredModule> result) {
    const std::shared_ptr<EncodeJob> waiting = weak.lock();
    if (waiting == nullptr) {
      return;
    }
    --waiting->pending;
    if (!result.ok()) {
      waiting->failure = result.error();
    } else if (EncodePart* part = waiting->find_part(entry); part != nullptr) {
      EncodeJob::attach(*part, std::move(result->pin));
    }
  };
  std::optional<kv::ModulePin> pin = acquire(std::move(want));
  if (!pin.has_value()) {
    ++job.pending;
    return Activation::kWaiting;
  }
  EncodePart* part = job.find_part(entry);
  assert(part != nullptr);
  EncodeJob::attach(*part, std::move(*pin));
  return Activation::kActive;
}

ModuleEncoder::Activation ModuleEncoder::gather_context(EncodeJob& job) {
  if (job.context.empty()) {
    for (const pml::ContextRef& ref : job.encoding().context) {
      EncodePart part;
      part.entry = ref.entry;
      part.limit = ref.limit;
      job.context.push_back(std::move(part));
    }
  }
  for (EncodePart& part : job.context) {
    if (!part.pin) {
      want_for_job(job, part.entry);
    }
  }
  return job.pending > 0 ? Activation::kWaiting : Activation::kActive;
}

// Memory for what this job computes. Entries of the pass that are resident already are read instead.
ModuleEncoder::Activation ModuleEncoder::gather_outputs(EncodeJob& job) {
  std::vector<EncodePart> known = std::move(job.outputs);  // what other jobs computed for this one
  job.outputs.clear();
  std::int32_t scratch_tokens = 0;
  for (const pml::EntryIndex entry : job.encoding().entries) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const EncodePart& part) { return part.entry == entry && part.pin; });
    if (found != known.end()) {
      job.outputs.push_back(std::move(*found));
      continue;
    }
    Result<EncodePart> part = make_output(job, entry);
    if (!part.ok()) {
      job.outputs.clear();  // what was reserved on the way is given back
      return cannot_reserve(job, entry, part.error());
    }
    if (part->is_new && !job.keeps_placeholders()) {
      part->placeholder_offset = scratch_tokens;
      scratch_tokens += placeholder_count(job.module_of(entry));
    }
    job.outputs.push_back(std::move(*part));
  }
  if (scratch_tokens == 0) {
    return Activation::kActive;
  }
  Result<kv::ModulePin> scratch = pool_.create_private(scratch_tokens, 0);
  if (!scratch.ok()) {
    job.outputs.clear();
    return cannot_reserve(job, job.encoding().entries.front(), scratch.error());
  }
  job.scratch = std::move(*scratch);
  for (EncodePart& part : job.outputs) {
    if (part.is_new) {
      part.placeholders = {job.scratch.kv().data, scratch_tokens};
    }
  }
  return Activation::kActive;
}

// One entry of the pass: pinned where it is resident, else with fresh memory.
Result<EncodePart> ModuleEncoder::make_output(const EncodeJob& job, pml::EntryIndex entry) {
  const pml::Module& module = job.module_of(entry);
  const kv::ModuleKey& key = job.version->keys[static_cast<std::size_t>(entry)];
  const bool shared = job.private_kv == nullptr && module.cache;
  EncodePart part;
  part.entry = entry;
  if (std::optional<kv::ModulePin> pin = shared ? pool_.pin(key) : std::nullopt) {
    EncodeJob::attach(part, std::move(*pin));
    return part;
  }
  part.is_new = true;
  const std::int32_t kept = kept_tokens(job.schema(), entry);
  if (kept == 0) {
    return part;
  }
  const std::int32_t tokens = module.token_count();
  // KV that no registered schema uses (any more) is for this job's waiters alone.
  const std::optional<kv::Retention> retention = shared ? retention_(key) : std::nullopt;
  Result<kv::ModulePin> pin = retention.has_value() ? pool_.create(key, tokens, kept - tokens, *retention)
                                                    : pool_.create_private(tokens, kept - tokens);
  if (!pin.ok()) {
    return pin.error();
  }
  EncodeJob::attach(part, std::move(*pin));
  return part;
}

ModuleEncoder::Activation ModuleEncoder::cannot_reserve(EncodeJob& job, pml::EntryIndex entry, const Error& error) {
  if (error.code == ErrorCode::kConflict) {  // another schema's job is computing it right now
    EncodePart wanted;
    wanted.entry = entry;
    job.outputs.push_back(std::move(wanted));
    return want_for_job(job, entry);
  }
  if (error.code == ErrorCode::kTooLargeForCache) {
    job.failure = error;
    return Activation::kGone;
  }
  return Activation::kNoMemory;
}

void ModuleEncoder::step_done(double seconds_per_row) {
  for (const std::shared_ptr<EncodeJob>& job : in_step_) {
    job->done_rows += job->step_rows;
    job->seconds += seconds_per_row * static_cast<double>(job->step_rows);
  }
  in_step_.clear();
}

bool ModuleEncoder::settle() {
  const bool delivered = tiers_.deliver();
  std::vector<std::shared_ptr<EncodeJob>> ended;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    if ((*it)->failure.has_value() || (*it)->finished()) {
      ended.push_back(*it);
      it = jobs_.erase(it);
    } else {
      ++it;
    }
  }
  for (const std::shared_ptr<EncodeJob>& job : ended) {
    if (job->failure.has_value()) {
      fail(*job, *job->failure);
    } else {
      finish(*job);
    }
  }
  one_at_a_time_ = one_at_a_time_ && !jobs_.empty();
  return delivered || !ended.empty();
}

void ModuleEncoder::finish(EncodeJob& job) {
  for (EncodePart& part : job.outputs) {
    if (!part.is_new) {
      continue;
    }
    if (part.pin) {
      const pml::Module& module = job.module_of(part.entry);
      const std::int32_t rows = module.token_count() + placeholder_count(module);
      // Does nothing for private KV.
      pool_.publish(part.pin, {job.seconds * rows / static_cast<double>(job.rows.size()), 0});
      if (pool_.contains(part.pin.key())) {
        tiers_.write_through(part.pin.key());
      }
    }
    if (job.private_kv != nullptr) {
      job.private_kv->entries[part.entry] = part.pin ? part.pin.duplicate() : kv::ModulePin();
    }
    metrics_.module_encodes().add();
  }
  if (!job.rows.empty()) {
    metrics_.module_encode().observe(std::chrono::duration<double>(Clock::now() - job.began).count());
  }
  std::vector<AcquiredModule> acquired;
  for (const EncodeJob::Waiter& waiter : job.waiters) {
    const EncodePart* const part = job.find_part(waiter.entry);
    assert(part != nullptr);
    acquired.push_back({part->pin ? part->pin.duplicate() : kv::ModulePin(), part->source});
  }
  // The job's own pins go first: whoever is told that a module is there finds it held by those who wanted it alone.
  job.outputs.clear();
  job.context.clear();
  job.scratch.release();
  for (std::size_t i = 0; i < acquired.size(); ++i) {
    if (!job.waiters[i].owner.expired()) {
      job.waiters[i].ready(std::move(acquired[i]));
    }
  }
}

void ModuleEncoder::fail(EncodeJob& job, const Error& error) {
  for (EncodeJob::Waiter& waiter : job.waiters) {
    if (!waiter.owner.expired()) {
      waiter.ready(error);
    }
  }
}

void ModuleEncoder::step_failed(const Error& error) {
  if (in_step_.size() == 1) {
    in_step_.front()->failure = error;
  } else {
    one_at_a_time_ = true;
  }
  in_step_.clear();
}

void ModuleEncoder::step_abandoned() { in_step_.clear(); }

// Work whose last waiter has gone is not done: a cancelled request leaves nothing behind that would delay others.
void ModuleEncoder::drop_unwanted() {
  std::erase_if(jobs_, [](const std::shared_ptr<EncodeJob>& job) {
    return std::all_of(job->waiters.begin(), job->waiters.end(),
                       [](const EncodeJob::Waiter& waiter) { return waiter.owner.expired(); });
  });
}

bool ModuleEncoder::has_foreground_work() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const std::shared_ptr<EncodeJob>& job) { return !job->background; });
}

void ModuleEncoder::fail_starved() {
  // Registrations in line may hold what a request's module needs: they take it up again later.
  bool released = false;
  for (const std::shared_ptr<EncodeJob>& job : jobs_) {
    if (has_foreground_work() && job->background && !job->active && job->pending == 0 && !job->context.empty()) {
      job->context.clear();
      released = true;
    }
  }
  if (released) {
    return;
  }
  for (const bool background : {false, true}) {
    for (const std::shared_ptr<EncodeJob>& job : jobs_) {
      if (job->background == background && !job->active && job->pending == 0 && job->loading == 0) {
        job->failure = make_error(ErrorCode::kTooLargeForCache,
                                  "module '" + job->module_of(job->encoding().entries.front()).path +
                                      "' and what it attends to do not fit the KV budget beside what is pinned; raise "
                                      "--kv-device-bytes or unpin modules");
        return;
      }
    }
  }
}

void ModuleEncoder::fail_all(const Error& error) {
  for (const std::shared_ptr<EncodeJob>& job : jobs_) {
    job->failure = error;
  }
  settle();
}

}  // namespace promptcached::engine
