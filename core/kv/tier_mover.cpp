#include "core/kv/tier_mover.h"

#include <algorithm>
#include <chrono>

namespace promptcached::kv {
namespace {

bool outlives_the_process(const Tier& tier) { return tier.name() != TierLabel::kHost; }

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

TierMover::TierMover(Options options, ModulePool& pool, Metrics& metrics)
    : options_(std::move(options)), pool_(pool), metrics_(metrics) {
  if (!has_tiers()) {
    return;
  }
  for (const auto& tier : options_.tiers) {
    costs_.try_emplace(tier->name());
  }
  for (int i = 0; i < std::max(options_.threads, 2); ++i) {
    // One thread does nothing but what requests wait for, however slow the stores are.
    threads_.emplace_back([this, i] { work(i == 0); });
  }
}

TierMover::~TierMover() { stop(); }

void TierMover::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

const Tier* TierMover::tier(TierLabel name) const {
  for (const auto& tier : options_.tiers) {
    if (tier->name() == name) {
      return tier.get();
    }
  }
  return nullptr;
}

std::optional<TierLabel> TierMover::find(const ModuleKey& key) const {
  for (const auto& tier : options_.tiers) {
    if (tier->has(key)) {
      return tier->name();
    }
  }
  return std::nullopt;
}

bool TierMover::worth_loading(const ModuleKey& key, std::size_t bytes, double recompute_seconds) {
  const Tier* slow = nullptr;
  for (const auto& tier : options_.tiers) {
    if (!tier->may_have(key)) {
      continue;
    }
    if (recompute_seconds > 0 && cost_of(*tier).estimate(bytes) >= recompute_seconds) {
      slow = slow == nullptr ? tier.get() : slow;
      continue;
    }
    if (tier->name() == TierLabel::kHost) {
      tier->touch(key);  // what leaves the device to make room for it must not push it out
    }
    return true;
  }
  if (slow != nullptr) {
    metrics_.tier_bypasses(slow->name()).add();
  }
  return false;
}

std::optional<TierMover::Foreseen> TierMover::foresee(const ModuleKey& key, std::size_t bytes,
                                                      double recompute_seconds) const {
  for (const auto& tier : options_.tiers) {
    if (!tier->has(key)) {
      continue;
    }
    const TransferCost& cost = costs_.at(tier->name());
    if (recompute_seconds <= 0 || cost.estimate(bytes) < recompute_seconds) {
      return Foreseen{tier->name(), cost.last_known(bytes)};
    }
  }
  return std::nullopt;
}

void TierMover::load(ModulePin destination, bool urgent, Done done) {
  const ModuleKey key = destination.key();
  add({Task::Kind::kLoad, key, std::move(destination), std::move(done)}, urgent);
}

void TierMover::prefetch(const ModuleKey& key) {
  for (const auto& tier : options_.tiers) {
    if (tier->has(key)) {
      tier->touch(key);  // what requests before it load pushes others out of the device, and those must not push it out
      break;
    }
  }
  if (has_tiers()) {
    add({Task::Kind::kPrefetch, key, {}, {}}, false);
  }
}

bool TierMover::keeps(const ModuleKey& key) const {
  if (tier(TierLabel::kHost) != nullptr) {
    return true;
  }
  const Tier* const disk = tier(TierLabel::kDisk);
  return disk != nullptr && !disk->has(key);
}

void TierMover::take_leaving(ModulePin pin) {
  const ModuleKey key = pin.key();
  add({Task::Kind::kLeave, key, std::move(pin), {}}, true);
}

void TierMover::write_through(const ModuleKey& key) {
  if (std::any_of(options_.tiers.begin(), options_.tiers.end(),
                  [](const auto& tier) { return outlives_the_process(*tier); })) {
    add({Task::Kind::kWriteThrough, key, {}, {}}, false);
  }
}

void TierMover::remove(const ModuleKey& key) {
  if (has_tiers()) {
    add({Task::Kind::kRemove, key, {}, {}}, false);
  }
}

void TierMover::set_retention(const ModuleKey& key, const Retention& retention) {
  for (const auto& tier : options_.tiers) {
    tier->set_retention(key, retention);
  }
}

void TierMover::drop_expired() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_tiers() || purge_waits_) {
      return;
    }
    purge_waits_ = true;
  }
  add({}, false);
}

std::size_t TierMover::drop_unpinned(TierLabel name) {
  for (const auto& tier : options_.tiers) {
    if (tier->name() == name) {
      return tier->drop_unpinned();
    }
  }
  return 0;
}

bool TierMover::deliver() {
  std::vector<std::pair<Done, Loaded>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (auto& [done, loaded] : ended) {
    done(std::move(loaded));
  }
  return !ended.empty();
}

bool TierMover::busy() const {
  const std::lock_guard lock(mutex_);
  return under_way_ > 0 || !ended_.empty();
}

std::uint64_t TierMover::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

bool TierMover::flush(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, grace, [this] { return urgent_.empty() && background_.empty() && begun_ == 0; });
}

void TierMover::add(Task task, bool urgent) {
  {
    const std::lock_guard lock(mutex_);
    under_way_ += task.kind == Task::Kind::kLoad || task.kind == Task::Kind::kLeave ? 1 : 0;
    (urgent ? urgent_ : background_).push_back(std::move(task));
  }
  work_.notify_all();
}

void TierMover::work(bool urgent_only) {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !urgent_.empty() || (!urgent_only && !background_.empty()); });
    if (stop_) {
      return;
    }
    std::deque<Task>& line = urgent_.empty() ? background_ : urgent_;
    Task task = std::move(line.front());
    line.pop_front();
    ++begun_;
    const bool carries =
        task.kind == Task::Kind::kLoad || task.kind == Task::Kind::kLeave || task.kind == Task::Kind::kWriteThrough;
    under_way_ += task.kind == Task::Kind::kWriteThrough ? 1 : 0;
    lock.unlock();
    run(task);
    task = {};  // its pin goes without the lock
    lock.lock();
    if (carries) {
      --under_way_;
      ++changes_;
      lock.unlock();
      options_.wake();
      lock.lock();
    }
    if (--begun_ == 0 && urgent_.empty() && background_.empty()) {
      idle_.notify_all();
    }
  }
}

void TierMover::run(Task& task) {
  switch (task.kind) {
    case Task::Kind::kLoad:
      run_load(task);
      return;
    case Task::Kind::kPrefetch:
      run_prefetch(task.key);
      return;
    case Task::Kind::kLeave:
      run_leave(task);
      return;
    case Task::Kind::kWriteThrough:
      run_write_through(task.key);
      return;
    case Task::Kind::kRemove:
      run_remove(task.key);
      return;
    case Task::Kind::kPurge:
      run_purge();
      return;
  }
}

void TierMover::run_load(Task& task) {
  Loaded loaded;
  for (const auto& tier : options_.tiers) {
    if (tier->may_have(task.key) && load_from(*tier, task.pin, loaded.worth) == LoadOutcome::kLoaded) {
      loaded.tier = tier->name();
      break;
    }
  }
  loaded.pin = std::move(task.pin);
  const std::lock_guard lock(mutex_);
  ended_.emplace_back(std::move(task.done), std::move(loaded));
}

LoadOutcome TierMover::load_from(Tier& tier, const ModulePin& pin, ModuleWorth& worth) {
  const ModuleKv& kv = pin.kv();
  DeviceSink sink(kv.data, options_.identity, pin.key(), kv.tokens, kv.extra_tokens, pool_.memory());
  const auto began = std::chrono::steady_clock::now();
  const LoadOutcome outcome = tier.load(sink);
  const double took = seconds_since(began);
  const TierLabel label = tier.name();
  if (outcome == LoadOutcome::kLoaded) {
    worth = sink.worth();
    cost_of(tier).observe(sink.bytes(), took);
    metrics_.cache_transfer_bytes(label, TierLabel::kDevice).add(static_cast<double>(sink.bytes()));
    metrics_.cache_transfer_seconds(label, TierLabel::kDevice).observe(took);
  } else if (outcome == LoadOutcome::kDamaged) {
    metrics_.cache_corrupt(label).add();
  } else if (outcome == LoadOutcome::kFailed) {
    cost_of(tier).observe(sink.bytes(), took);
    metrics_.tier_errors(label).add();
  }
  return outcome;
}

void TierMover::run_prefetch(const ModuleKey& key) {
  for (const auto& tier : options_.tiers) {
    if (tier->may_have(key)) {
      tier->prefetch(key);
      return;
    }
  }
}

// Into the nearest tier that takes it. Disk and remote store have most modules already, since they are written through.
void TierMover::run_leave(Task& task) {
  const RecordHeader header = header_for(task.pin);
  Tier* taker = nullptr;
  for (const auto& tier : options_.tiers) {
    if (tier->name() == TierLabel::kHost || !tier->has(task.key)) {
      DeviceSource source(header, task.pin.duplicate(), pool_.memory());
      if (store_in(*tier, source, TierLabel::kDevice)) {
        taker = tier.get();
        break;
      }
    }
    if (tier->has(task.key)) {
      break;
    }
  }
  const bool gone = pool_.leave(std::move(task.pin));
  // Somebody asked for it meanwhile, so that it stays, and the host's copy is one too many; or its schema was deleted.
  const bool stays = !gone && taker != nullptr && taker->name() == TierLabel::kHost;
  if (taker != nullptr && (stays || !options_.retention(task.key).has_value())) {
    taker->remove(task.key);
  }
}

void TierMover::run_write_through(const ModuleKey& key) {
  for (const auto& tier : options_.tiers) {
    if (!outlives_the_process(*tier) || tier->has(key)) {
      continue;
    }
    TierLabel from = TierLabel::kDevice;
    const std::unique_ptr<RecordSource> source = source_of(key, from);
    if (source == nullptr) {
      return;  // gone from here; what leaves the host without a copy below is saved then
    }
    store_in(*tier, *source, from);
    if (!options_.retention(key).has_value()) {
      tier->remove(key);
    }
  }
}

// The module from the device, or from the host tier if it has left already.
std::unique_ptr<RecordSource> TierMover::source_of(const ModuleKey& key, TierLabel& from) {
  if (std::optional<ModulePin> pin = pool_.hold(key)) {
    from = TierLabel::kDevice;
    const RecordHeader header = header_for(*pin);
    return std::make_unique<DeviceSource>(header, std::move(*pin), pool_.memory());
  }
  for (const auto& tier : options_.tiers) {
    if (std::unique_ptr<RecordSource> source = tier->source(key)) {
      from = tier->name();
      return source;
    }
  }
  return nullptr;
}

// What has no copy below is saved there before it goes.
void TierMover::take_from_host(RecordSource& source) {
  metrics_.cache_evictions(TierLabel::kHost, EvictionLabel::kCapacity).add();
  const ModuleKey& key = source.header().key;
  for (const auto& tier : options_.tiers) {
    if (outlives_the_process(*tier)) {
      if (!tier->has(key) && options_.retention(key).has_value()) {
        store_in(*tier, source, TierLabel::kHost);
      }
      return;
    }
  }
}

bool TierMover::store_in(Tier& tier, RecordSource& source, TierLabel from) {
  const TierLabel label = tier.name();
  const auto began = std::chrono::steady_clock::now();
  const StoreOutcome outcome = tier.store(source);
  if (outcome == StoreOutcome::kStored) {
    metrics_.cache_transfer_bytes(from, label).add(static_cast<double>(source.header().payload_bytes()));
    metrics_.cache_transfer_seconds(from, label).observe(seconds_since(began));
  } else if (outcome == StoreOutcome::kFailed) {
    metrics_.tier_errors(label).add();
  }
  return outcome == StoreOutcome::kStored;
}

RecordHeader TierMover::header_for(const ModulePin& pin) const {
  RecordHeader header;
  header.identity = options_.identity;
  header.key = pin.key();
  header.tokens = pin.kv().tokens;
  header.extra_tokens = pin.kv().extra_tokens;
  header.codec = options_.codec;
  header.last_use = std::chrono::system_clock::now();
  if (const std::optional<ModuleInfo> info = pool_.info(pin.key())) {
    header.retention = info->retention;
    header.worth = info->worth;
    header.last_use -=
        std::chrono::duration_cast<RecordHeader::Time::duration>(std::chrono::duration<double>(info->idle_seconds));
  }
  return header;
}

// Registered again meanwhile, it is wanted.
void TierMover::run_remove(const ModuleKey& key) {
  if (options_.retention(key).has_value()) {
    return;
  }
  for (const auto& tier : options_.tiers) {
    tier->remove(key);
  }
}

// A module on the device is in use there: its copies below live as long.
void TierMover::run_purge() {
  {
    const std::lock_guard lock(mutex_);
    purge_waits_ = false;
  }
  for (const auto& tier : options_.tiers) {
    for (const ModuleKey& key : tier->expired()) {
      if (pool_.contains(key)) {
        tier->touch(key);
      } else {
        tier->remove(key);
        metrics_.cache_evictions(tier->name(), EvictionLabel::kTtl).add();
      }
    }
  }
}

}  // namespace promptcached::kv
