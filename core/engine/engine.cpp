#include "core/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/base/bounded_queue.h"
#include "core/base/log.h"
#include "core/engine/model_worker.h"
#include "core/engine/module_encoder.h"
#include "core/engine/registration.h"
#include "core/engine/scheduler.h"
#include "core/engine/schema_store.h"

namespace promptcached::engine {
namespace {

EvictionLabel label_of(kv::EvictionReason reason) {
  switch (reason) {
    case kv::EvictionReason::kCapacity:
      return EvictionLabel::kCapacity;
    case kv::EvictionReason::kTtl:
      return EvictionLabel::kTtl;
    case kv::EvictionReason::kRequested:
      return EvictionLabel::kRequested;
    case kv::EvictionReason::kReplaced:
      return EvictionLabel::kReplaced;
  }
  return EvictionLabel::kCapacity;
}

Error draining() { return make_error(ErrorCode::kDraining, "the server is shutting down"); }

// How many requests or registrations are open, and who waits for the last to end.
class OpenWork {
 public:
  // A slot, given back when the pointer goes; nullptr when `limit` are taken.
  std::shared_ptr<void> take(std::int64_t limit) {
    const std::lock_guard lock(mutex_);
    if (open_ >= limit) {
      return nullptr;
    }
    ++open_;
    return {this, [](OpenWork* open) { open->give_back(); }};
  }
  bool wait_for_none(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, grace, [this] { return open_ == 0; });
  }

 private:
  void give_back() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) {
      none_.notify_all();
    }
  }
  std::mutex mutex_;  // guards open_: slots are taken on HTTP threads and given back on the engine thread
  std::condition_variable none_;
  std::int64_t open_ = 0;
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(const EngineOptions& options, std::unique_ptr<model::CausalLm> model, pml::ModelText text,
             Metrics& metrics)
      : options_(options),
        model_(std::move(model)),
        text_(std::move(text)),
        metrics_(metrics),
        worker_(*model_),
        grammars_(text_.tokenizer, model_->info().vocab_size, model_->info().end_tokens),
        pool_(pool_options(), geometry_of(model_->info()), device_allocator(*model_)),
        tiers_(mover_options(), pool_, metrics),
        store_(pool_, tiers_, text_, identity(), options.pml_limits, options.schema_journal,
               [this](std::shared_ptr<const SchemaVersion> version, std::function<void(Status)> done) {
                 start_registration(std::move(version), std::move(done));
               }),
        encoder_(pool_, tiers_, metrics, [this](const kv::ModuleKey& key) { return store_.retention(key); }),
        prefixes_({options.prefix_cache, identity()}, pool_, tiers_, encoder_.price()),
        scheduler_({options.max_batch_tokens, options.max_running, model_->info().end_tokens}, pool_, encoder_,
                   prefixes_, metrics),
        inbox_(static_cast<std::size_t>(options.max_running + options.max_queue) + kControlMessages) {
    metrics_.set_collector([this] { collect(); });
    thread_ = std::thread([this] { loop(); });
  }

  ~EngineImpl() override {
    draining_ = true;
    stop_ = true;
    inbox_.close();
    thread_.join();
    tiers_.stop();  // its threads ask the store, which goes first
    metrics_.set_collector({});
  }

  Result<std::shared_ptr<TokenStream>> submit(GenerateRequest request) override;
  Result<Forecast> forecast(GenerateRequest request) override;
  guide::GrammarCompiler& grammars() override { return grammars_; }
  SchemaRegistry& schemas() override { return store_; }
  kv::ModulePool& pool() override { return pool_; }
  kv::TierMover& tiers() override { return tiers_; }
  const pml::ModelText& text() const override { return text_; }
  const model::ModelInfo& model_info() const override { return model_->info(); }
  EngineStatus status() const override { return {running_, waiting_, draining_}; }
  bool drain(std::chrono::milliseconds grace) override;

 private:
  // Room in the inbox for what is not a request: registrations, wake-ups, drain.
  static constexpr std::size_t kControlMessages = 4096;

  KvIdentity identity() const { return {model_->info().fingerprint, model_->info().kv_dtype, ""}; }
  kv::ModulePool::Options pool_options();
  kv::TierMover::Options mover_options();
  void wake() {
    inbox_.try_push(std::function<void()>([] {}));
  }  // full: it is awake
  void loop();
  bool step();
  bool wait();
  void idle();
  void start_registration(std::shared_ptr<const SchemaVersion> version, std::function<void(Status)> done);
  Status check_fits(const GenerateRequest& request) const;
  Status guide_by_grammar(Sequence& sequence);
  void prefetch(const GenerateRequest& request);
  void collect();
  void collect_tier(TierLabel label, const kv::TierStats& stats);
  void publish_status() {
    running_ = scheduler_.running();
    waiting_ = scheduler_.waiting();
  }

  EngineOptions options_;
  std::unique_ptr<model::CausalLm> model_;
  pml::ModelText text_;
  Metrics& metrics_;
  ModelWorker worker_;
  guide::GrammarCompiler grammars_;
  MaskWorkers mask_workers_;
  OpenWork open_;
  OpenWork registrations_;  // take no request's place
  kv::ModulePool pool_;
  kv::TierMover tiers_;
  SchemaStore store_;
  ModuleEncoder encoder_;
  PrefixCache prefixes_;
  Scheduler scheduler_;
  BoundedQueue<std::function<void()>> inbox_;  // the crossing from HTTP threads; an empty function only wakes
  std::atomic<std::int64_t> running_{0};
  std::atomic<std::int64_t> waiting_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Result<std::shared_ptr<TokenStream>> EngineImpl::submit(GenerateRequest request) {
  if (draining_) {
    return draining();
  }
  if (Status fits = check_fits(request); !fits.ok()) {
    return fits.error();
  }
  std::shared_ptr<void> slot = open_.take(options_.max_running + options_.max_queue);
  if (slot == nullptr) {
    return make_error(ErrorCode::kQueueFull, "all " + std::to_string(options_.max_running) +
                                                 " places and the queue of " + std::to_string(options_.max_queue) +
                                                 " are taken; try again later");
  }
  prefetch(request);
  auto stream = std::make_shared<TokenStream>();
  stream->on_cancel([this] { wake(); });
  auto sequence = std::make_shared<Sequence>(std::move(request), stream, text_.tokenizer, pool_);
  sequence->slot = std::move(slot);
  if (Status status = guide_by_grammar(*sequence); !status) {
    return status.error();
  }
  // From here on only the engine thread touches the sequence.
  const PushResult pushed = inbox_.try_push([this, sequence] { scheduler_.add(sequence); });
  if (pushed == PushResult::kClosed) {
    return draining();
  }
  if (pushed == PushResult::kFull) {
    return make_error(ErrorCode::kQueueFull, "the engine's inbox is full; try again later");
  }
  return stream;
}

Result<Forecast> EngineImpl::forecast(GenerateRequest request) {
  if (Status fits = check_fits(request); !fits.ok()) {
    return fits.error();
  }
  const auto sequence = std::make_shared<Sequence>(std::move(request), nullptr, text_.tokenizer, pool_);
  auto made = std::make_shared<std::promise<Forecast>>();
  std::future<Forecast> forecast = made->get_future();
  const PushResult pushed = inbox_.try_push([this, sequence, made = std::move(made)] {
    made->set_value(Forecaster(pool_, tiers_, prefixes_, scheduler_, encoder_.price()).run(*sequence));
  });
  if (pushed == PushResult::kFull) {
    return make_error(ErrorCode::kQueueFull, "the engine's inbox is full; try again later");
  }
  return pushed == PushResult::kClosed ? Result<Forecast>(draining()) : forecast.get();
}

// The first mask is there, as a rule, long before the prompt is computed.
Status EngineImpl::guide_by_grammar(Sequence& sequence) {
  if (sequence.request.grammar == nullptr) {
    return {};
  }
  Result<guide::Matcher> matcher = sequence.request.grammar->start();
  if (!matcher) {
    return matcher.error();
  }
  const auto tokens = static_cast<std::size_t>(model_->info().vocab_size);
  sequence.token_guide = std::make_shared<TokenGuide>(std::move(*matcher), tokens, mask_workers_);
  sequence.token_guide->prepare();
  return {};
}

// While the engine is in a step, what this request will ask for can come nearer.
void EngineImpl::prefetch(const GenerateRequest& request) {
  if (!tiers_.has_tiers() || running_ + waiting_ == 0 || request.bypass_cache) {
    return;
  }
  for (const pml::CachedPart& part : request.plan.cached) {
    const kv::ModuleKey& key = request.version->keys[static_cast<std::size_t>(part.entry)];
    if (!pool_.contains(key)) {
      tiers_.prefetch(key);
    }
  }
}

// A request that could never run, even alone, is refused before anything is computed for it.
Status EngineImpl::check_fits(const GenerateRequest& request) const {
  std::size_t bytes = 0;
  for (const pml::CachedPart& part : request.plan.cached) {
    bytes += static_cast<std::size_t>(part.token_count()) * pool_.geometry().bytes_per_token();
  }
  const std::int64_t own = static_cast<std::int64_t>(request.plan.new_tokens.size()) + request.max_tokens;
  const std::int64_t blocks = own / options_.block_tokens + 1;
  bytes += pool_.geometry().bytes(blocks * options_.block_tokens);
  const std::size_t capacity = pool_.stats().capacity_bytes;
  if (bytes > capacity) {
    return make_error(ErrorCode::kTooLargeForCache, "the request needs " + std::to_string(bytes) +
                                                        " bytes of KV (modules, new tokens and max_tokens), "
                                                        "the whole budget is " +
                                                        std::to_string(capacity) +
                                                        "; raise --kv-device-bytes or ask for "
                                                        "fewer tokens");
  }
  return {};
}

void EngineImpl::start_registration(std::shared_ptr<const SchemaVersion> version, std::function<void(Status)> done) {
  if (draining_) {
    done(draining());
    return;
  }
  std::shared_ptr<void> slot = registrations_.take(std::numeric_limits<std::int64_t>::max());
  auto registration = std::make_shared<Registration>(
      std::move(version), encoder_,
      [slot = std::move(slot), done = std::move(done)](const Status& status) { done(status); });
  const PushResult pushed = inbox_.try_push([registration] { registration->start(); });
  if (pushed != PushResult::kPushed) {
    registration->abandon(pushed == PushResult::kFull ? make_error(ErrorCode::kQueueFull, "the engine's inbox is full")
                                                      : draining());
  }
}

void EngineImpl::loop() {
  bool nothing_to_compute = false;
  for (;;) {
    if ((nothing_to_compute || !scheduler_.has_work()) && !wait()) {
      break;
    }
    while (std::optional<std::function<void()>> message = inbox_.try_pop()) {
      (*message)();
    }
    if (stop_) {
      break;
    }
    publish_status();
    nothing_to_compute = !step() && scheduler_.waits_for_tiers();
    publish_status();
  }
  while (std::optional<std::function<void()>> message = inbox_.try_pop()) {
    (*message)();
  }
  scheduler_.fail_all(draining());
  publish_status();
}

// Waits for a message, and for no longer than a request's deadline. False: there will be none.
bool EngineImpl::wait() {
  std::optional<std::function<void()>> message;
  const bool has_work = scheduler_.has_work();
  if (const auto deadline = scheduler_.next_deadline(); has_work && deadline.has_value()) {
    message = inbox_.pop_until(*deadline);
  } else {
    if (!has_work) {
      idle();
    }
    message = inbox_.pop();
  }
  if (message.has_value()) {
    (*message)();
  }
  return message.has_value() || !inbox_.closed();
}

// Whether there was anything to compute.
bool EngineImpl::step() {
  if (!scheduler_.has_work()) {
    return false;
  }
  const Scheduler::Step& step = scheduler_.next();
  if (step.empty()) {
    return false;
  }
  const Result<model::Logits> logits = worker_.run(step.batch);
  if (logits.ok()) {
    scheduler_.complete(*logits);
  } else {
    log::error("step of {} rows failed: {}", step.batch.rows(), logits.error().message);
    scheduler_.failed(logits.error());
  }
  return true;
}

kv::ModulePool::Options EngineImpl::pool_options() {
  kv::ModulePool::Options pool;
  pool.capacity_bytes = options_.kv_device_bytes > 0 ? options_.kv_device_bytes : model_->free_memory_bytes() / 2;
  pool.block_tokens = options_.block_tokens;
  pool.poison = options_.poison_kv;
  pool.eviction = options_.kv_eviction;
  pool.on_evict = [this](kv::EvictionReason reason, std::size_t) {
    metrics_.cache_evictions(TierLabel::kDevice, label_of(reason)).add();
  };
  pool.is_kept_below = [this](const kv::ModuleKey& key) { return tiers_.keeps(key); };
  pool.on_leave = [this](kv::ModulePin pin) { tiers_.take_leaving(std::move(pin)); };
  return pool;
}

kv::TierMover::Options EngineImpl::mover_options() {
  kv::TierMover::Options mover;
  mover.tiers = make_tiers(options_.tiers, options_.kv_eviction, *model_, metrics_,
                           [this](kv::RecordSource& record) { tiers_.take_from_host(record); });
  mover.identity = record_identity(model_->info());
  mover.codec = options_.tiers.codec;
  // Prefix blocks are no schema's: they are wanted until they are evicted.
  mover.retention = [this](const kv::ModuleKey& key) {
    return key.is_prefix() ? std::optional(kv::Retention{}) : store_.retention(key);
  };
  mover.wake = [this] { wake(); };
  return mover;
}

void EngineImpl::idle() {
  pool_.drop_expired();
  tiers_.drop_expired();
  if (options_.check_kv && !pool_.check_integrity()) {
    log::error("KV pool: free, modules and blocks do not add up to its capacity");
    std::terminate();
  }
}

bool EngineImpl::drain(std::chrono::milliseconds grace) {
  draining_ = true;
  const auto end = std::chrono::steady_clock::now() + grace;
  const auto left = [end] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  };
  if (open_.wait_for_none(grace) && registrations_.wait_for_none(left())) {
    tiers_.flush(std::max(left(), std::chrono::milliseconds(0)));  // what was encoded last is still being written
    return true;
  }
  inbox_.try_push(std::function<void()>([this] { scheduler_.fail_all(draining()); }));
  constexpr std::chrono::seconds kLastStep{5};  // the step in progress has to end first
  open_.wait_for_none(kLastStep);
  registrations_.wait_for_none(kLastStep);
  return false;
}

// Refreshes the gauges when Prometheus asks.
void EngineImpl::collect() {
  pool_.drop_expired();
  tiers_.drop_expired();
  const kv::PoolStats stats = pool_.stats();
  collect_tier(TierLabel::kDevice, {.capacity_bytes = stats.capacity_bytes,
                                    .used_bytes = stats.module_bytes + stats.prefix_bytes,
                                    .pinned_bytes = stats.pinned_bytes,
                                    .entries = stats.entries,
                                    .prefix_entries = stats.prefix_entries,
                                    .prefix_bytes = stats.prefix_bytes});
  for (const TierLabel name : kv::kTiersBelow) {
    if (const kv::Tier* tier = tiers_.tier(name)) {
      collect_tier(name, tier->stats());
    }
  }
  metrics_.kv_blocks_free().set(static_cast<double>(stats.free_blocks));
  metrics_.requests_running().set(static_cast<double>(running_));
  metrics_.requests_waiting().set(static_cast<double>(waiting_));
  metrics_.schemas().set(static_cast<double>(store_.size()));
}

void EngineImpl::collect_tier(TierLabel label, const kv::TierStats& stats) {
  metrics_.cache_bytes(label).set(static_cast<double>(stats.used_bytes - stats.prefix_bytes));
  metrics_.cache_capacity_bytes(label).set(static_cast<double>(stats.capacity_bytes));
  metrics_.cache_pinned_bytes(label).set(static_cast<double>(stats.pinned_bytes));
  metrics_.cache_entries(label).set(static_cast<double>(stats.entries));
  metrics_.prefix_cache_bytes(label).set(static_cast<double>(stats.prefix_bytes));
  metrics_.prefix_cache_entries(label).set(static_cast<double>(stats.prefix_entries));
}

}  // namespace

std::unique_ptr<Engine> Engine::create(const EngineOptions& options, std::unique_ptr<model::CausalLm> model,
                                       pml::ModelText text, Metrics& metrics) {
  return std::make_unique<EngineImpl>(options, std::move(model), std::move(text), metrics);
}

}  // namespace promptcached::engine
