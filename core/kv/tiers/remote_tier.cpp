#include "core/kv/tiers/remote_tier.h"

#include <cstring>
#include <optional>
#include <utility>

#include "core/base/log.h"

namespace promptcached::kv {
namespace {

// What is fetched ahead takes memory outside every budget: few values, and not for long.
constexpr std::size_t kMostAhead = 4;
constexpr std::chrono::seconds kAheadFor{30};

// Servers of different versions may share a store: each sees its own records.
std::string name_of(const ModuleKey& key) { return "kv1-" + key.hex(); }

}  // namespace

RemoteTier::RemoteTier(const Options& options, std::unique_ptr<RemoteStore> store)
    : IndexedTier(0, EvictionKind::kCost), options_(options), store_(std::move(store)), breaker_(options.breaker) {}

bool RemoteTier::may_have(const ModuleKey&) const { return breaker_.ready(); }

// Whether the store did what it was asked. Says so once when it stops, and once when it works again.
bool RemoteTier::answered(const Status& status) {
  const bool was_open = breaker_.open();
  if (status.ok()) {
    breaker_.succeeded();
    if (was_open) {
      log::info("remote KV: {} answers again", store_->describe());
    }
    return true;
  }
  breaker_.failed();
  if (!was_open) {
    log::warn("remote KV: {}: {}", store_->describe(), status.error().message);
  }
  return false;
}

RemoteTier::Fetched RemoteTier::fetch(const ModuleKey& key) {
  auto value = std::make_shared<Result<std::optional<RemoteValue>>>(store_->read(name_of(key)));
  answered(value->ok() ? Status() : Status(value->error()));
  return value;
}

void RemoteTier::prefetch(const ModuleKey& key) {
  std::promise<Fetched> promise;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(ahead_, [now](const auto& entry) { return now - entry.second.since > kAheadFor; });
    if (ahead_.size() >= kMostAhead || ahead_.contains(key) || !breaker_.allow()) {
      return;
    }
    ahead_.emplace(key, Ahead{promise.get_future().share(), now});
  }
  promise.set_value(fetch(key));
}

std::optional<std::shared_future<RemoteTier::Fetched>> RemoteTier::take_ahead(const ModuleKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = ahead_.find(key);
  if (found == ahead_.end()) {
    return std::nullopt;
  }
  std::shared_future<Fetched> value = std::move(found->second.value);
  ahead_.erase(found);
  return value;
}

LoadOutcome RemoteTier::load(DeviceSink& sink) {
  const std::optional<std::shared_future<Fetched>> ahead = take_ahead(sink.key());
  if (!ahead.has_value() && !breaker_.allow()) {
    return LoadOutcome::kMissing;
  }
  const Fetched fetched = ahead.has_value() ? ahead->get() : fetch(sink.key());
  if (!fetched->ok()) {
    return LoadOutcome::kFailed;
  }
  const std::optional<RemoteValue>& value = **fetched;
  if (!value.has_value()) {
    forget(sink.key());
    return LoadOutcome::kMissing;
  }
  const LoadOutcome outcome = read(value->bytes(), sink);
  if (outcome != LoadOutcome::kLoaded) {
    remove(sink.key());
  }
  return outcome;
}

LoadOutcome RemoteTier::read(std::span<const std::byte> value, DeviceSink& sink) {
  const HeaderOrFault head = read_record_header(value, options_.identity);
  const std::size_t begin = record_header_bytes(options_.identity.geometry.planes());
  std::optional<RecordFault> fault = head.fault;
  if (head.header.has_value()) {
    if (head.header->expired(std::chrono::system_clock::now())) {
      return LoadOutcome::kMissing;
    }
    fault = value.size() == begin + head.header->payload_bytes() ? sink.begin(*head.header)
                                                                 : std::optional(RecordFault::kTruncated);
  }
  std::size_t offset = begin;
  for (std::int32_t i = 0; !fault.has_value() && i < options_.identity.geometry.planes(); ++i) {
    const std::size_t bytes = head.header->planes[static_cast<std::size_t>(i)].bytes;
    fault = sink.put(i, value.subspan(offset, bytes));
    offset += bytes;
  }
  if (fault.has_value()) {
    log::warn("remote KV: {} in {} is {}; removed", name_of(sink.key()), store_->describe(), to_string(*fault));
    return LoadOutcome::kDamaged;
  }
  know(*head.header, value.size());
  return LoadOutcome::kLoaded;
}

StoreOutcome RemoteTier::store(RecordSource& source) {
  if (!breaker_.allow()) {
    return StoreOutcome::kNoRoom;
  }
  const std::int32_t planes = options_.identity.geometry.planes();
  const std::size_t begin = record_header_bytes(planes);
  const auto value = std::make_unique_for_overwrite<std::byte[]>(begin + source.max_payload_bytes());
  std::size_t end = begin;
  for (std::int32_t i = 0; i < planes; ++i) {
    const std::span<const std::byte> plane = source.plane(i);
    std::memcpy(value.get() + end, plane.data(), plane.size());
    end += plane.size();
  }
  const std::vector<std::byte> header = write_record_header(source.header());
  std::memcpy(value.get(), header.data(), header.size());
  source.release();  // the network takes its time
  if (!answered(store_->write(name_of(source.header().key), {value.get(), end}))) {
    return StoreOutcome::kFailed;
  }
  know(source.header(), end);
  return StoreOutcome::kStored;
}

void RemoteTier::know(const RecordHeader& header, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (auto* const entry = index_.find(header.key)) {
    index_.use(*entry, std::chrono::system_clock::now());
  } else {
    index_.add(header, bytes, {});
  }
}

void RemoteTier::remove(const ModuleKey& key) {
  forget(key);
  if (breaker_.allow()) {
    answered(store_->remove(name_of(key)));
  }
}

}  // namespace promptcached::kv
