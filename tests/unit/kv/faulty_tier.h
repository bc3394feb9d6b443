// FaultyTier: a real tier that fails, waits or refuses when a test says so.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "core/kv/tiers/tier.h"

namespace promptcached::kv {

class FaultyTier final : public Tier {
 public:
  explicit FaultyTier(std::unique_ptr<Tier> tier) : tier_(std::move(tier)) {}

  std::atomic<bool> fail_loads{false};     // as EIO
  std::atomic<bool> fail_stores{false};    // as ENOSPC
  std::atomic<bool> refuse_stores{false};  // as a full budget
  std::chrono::milliseconds delay{0};

  TierLabel name() const override { return tier_->name(); }
  bool has(const ModuleKey& key) const override { return tier_->has(key); }
  bool may_have(const ModuleKey& key) const override { return tier_->may_have(key); }
  LoadOutcome load(DeviceSink& sink) override {
    std::this_thread::sleep_for(delay);
    return fail_loads ? LoadOutcome::kFailed : tier_->load(sink);
  }
  StoreOutcome store(RecordSource& source) override {
    if (fail_stores) {
      source.plane(0);  // it had begun
      return StoreOutcome::kFailed;
    }
    return refuse_stores ? StoreOutcome::kNoRoom : tier_->store(source);
  }
  void remove(const ModuleKey& key) override { tier_->remove(key); }
  std::unique_ptr<RecordSource> source(const ModuleKey& key) const override { return tier_->source(key); }
  void set_retention(const ModuleKey& key, const Retention& retention) override {
    tier_->set_retention(key, retention);
  }
  void touch(const ModuleKey& key) override { tier_->touch(key); }
  std::vector<ModuleKey> expired() const override { return tier_->expired(); }
  std::size_t drop_unpinned() override { return tier_->drop_unpinned(); }
  TierStats stats() const override { return tier_->stats(); }
  std::vector<ModuleInfo> list() const override { return tier_->list(); }

 private:
  std::unique_ptr<Tier> tier_;
};

}  // namespace promptcached::kv
