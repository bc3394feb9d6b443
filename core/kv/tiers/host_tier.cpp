#include "core/kv/tiers/host_tier.h"

#include <cassert>
#include <cstring>
#include <span>
#include <utility>

namespace promptcached::kv {

class HostRecord {
 public:
  HostRecord(HostTier& tier, RecordHeader header, std::byte* data, std::size_t bytes)
      : tier_(tier), header_(std::move(header)), data_(data), bytes_(bytes) {
    std::size_t offset = 0;
    for (const RecordHeader::Plane& plane : header_.planes) {
      planes_.emplace_back(data_ + offset, plane.bytes);
      offset += plane.bytes;
    }
  }
  HostRecord(const HostRecord&) = delete;
  HostRecord& operator=(const HostRecord&) = delete;
  ~HostRecord() {
    tier_.memory_->deallocate(data_, bytes_);
    tier_.give_back(bytes_);
  }

  const RecordHeader& header() const { return header_; }
  std::span<const std::byte> plane(std::int32_t index) const { return planes_[static_cast<std::size_t>(index)]; }
  std::size_t bytes() const { return bytes_; }

 private:
  HostTier& tier_;
  RecordHeader header_;
  std::byte* data_;
  std::size_t bytes_;
  std::vector<std::span<const std::byte>> planes_;
};

// A record on its way to a lower tier.
class HostTier::Source final : public RecordSource {
 public:
  explicit Source(Value record) : record_(std::move(record)) {}
  const RecordHeader& header() const override { return record_->header(); }
  std::size_t max_payload_bytes() const override { return record_->bytes(); }
  std::span<const std::byte> plane(std::int32_t index) override { return record_->plane(index); }

 private:
  Value record_;
};

HostTier::HostTier(const Options& options, std::unique_ptr<KvAllocator> memory)
    : IndexedTier(options.capacity_bytes, options.eviction), options_(options), memory_(std::move(memory)) {}

// Records give back what they hold to members that go before the index would.
HostTier::~HostTier() { index_.clear(); }

LoadOutcome HostTier::load(DeviceSink& sink) {
  Value record;
  bool expired = false;
  {
    const std::lock_guard lock(mutex_);
    auto* const entry = index_.find(sink.key());
    if (entry == nullptr) {
      return LoadOutcome::kMissing;
    }
    expired = entry->expired(std::chrono::system_clock::now());
    record = index_.take(*entry);
  }
  if (expired) {
    return LoadOutcome::kMissing;
  }
  std::optional<RecordFault> fault = sink.begin(record->header());
  for (std::int32_t i = 0; !fault.has_value() && i < sink.identity().geometry.planes(); ++i) {
    fault = sink.put(i, record->plane(i));
  }
  return fault.has_value() ? LoadOutcome::kDamaged : LoadOutcome::kLoaded;
}

StoreOutcome HostTier::store(RecordSource& source) {
  const ModuleKey key = source.header().key;
  const std::size_t most = source.max_payload_bytes();
  if (has(key)) {
    return StoreOutcome::kStored;
  }
  if (!reserve(most)) {
    return StoreOutcome::kNoRoom;
  }
  std::byte* const data = memory_->allocate(most);
  if (data == nullptr) {
    give_back(most);
    return StoreOutcome::kFailed;
  }
  std::size_t bytes = 0;
  for (std::int32_t i = 0; i < source.header().identity.geometry.planes(); ++i) {
    const std::span<const std::byte> plane = source.plane(i);
    assert(bytes + plane.size() <= most);
    std::memcpy(data + bytes, plane.data(), plane.size());
    bytes += plane.size();
  }
  std::byte* const exact = shrink(data, most, bytes);
  if (exact == nullptr) {
    give_back(bytes);
    return StoreOutcome::kFailed;
  }
  auto record = std::make_shared<const HostRecord>(*this, source.header(), exact, bytes);
  const std::lock_guard lock(mutex_);
  if (!index_.contains(key)) {
    const RecordHeader& header = record->header();
    index_.add(header, bytes, std::move(record));
  }
  return StoreOutcome::kStored;
}

// Compressed records get memory of their own size, once it is known.
std::byte* HostTier::shrink(std::byte* data, std::size_t reserved, std::size_t bytes) {
  if (bytes == reserved) {
    return data;
  }
  std::byte* const exact = memory_->allocate(bytes);
  if (exact != nullptr) {
    std::memcpy(exact, data, bytes);
  }
  memory_->deallocate(data, reserved);
  give_back(reserved - bytes);
  return exact;
}

// Room for `bytes`, for which others go. What goes is offered to the tiers below first, and still counts meanwhile.
bool HostTier::reserve(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  if (bytes > options_.capacity_bytes) {
    return false;
  }
  while (reserved_bytes_ + bytes > options_.capacity_bytes) {
    auto* const victim = index_.next_to_go();
    if (victim == nullptr) {
      return false;
    }
    {
      Source leaving(index_.take(*victim));
      lock.unlock();
      if (options_.on_evict) {
        options_.on_evict(leaving);
      }
    }
    lock.lock();
  }
  reserved_bytes_ += bytes;
  return true;
}

void HostTier::give_back(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  assert(bytes <= reserved_bytes_);
  reserved_bytes_ -= bytes;
}

void HostTier::remove(const ModuleKey& key) { forget(key); }

std::unique_ptr<RecordSource> HostTier::source(const ModuleKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto* const entry = index_.find(key);
  return entry == nullptr ? nullptr : std::make_unique<Source>(entry->value);
}

}  // namespace promptcached::kv
