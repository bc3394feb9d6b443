#include "core/engine/kv_storage.h"

#include <stdexcept>
#include <utility>

#include "core/base/log.h"
#include "core/base/sha256.h"
#include "core/kv/tiers/disk_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "core/kv/tiers/remote_tier.h"

namespace promptcached::engine {
namespace {

bool on_cpu(const model::CausalLm& model) { return model.info().device == "cpu"; }

// The model's device memory, as the pool asks for it.
class DeviceAllocator final : public kv::KvAllocator {
 public:
  explicit DeviceAllocator(model::CausalLm& model) : model_(model) {}
  std::byte* allocate(std::size_t bytes) override { return model_.allocate_kv(bytes); }
  void deallocate(std::byte* data, std::size_t bytes) override { model_.deallocate_kv(data, bytes); }
  void poison(std::byte* data, std::size_t bytes) override { model_.poison_kv(data, bytes); }
  bool on_host() const override { return false; }
  void copy_to_host(std::byte* host, const std::byte* device, std::size_t bytes) override {
    model_.copy_kv_to_host(host, device, bytes);
  }
  void copy_from_host(std::byte* device, const std::byte* host, std::size_t bytes) override {
    model_.copy_kv_from_host(device, host, bytes);
  }

 private:
  model::CausalLm& model_;
};

// Host memory that the device copies to and from directly.
class PinnedAllocator final : public kv::KvAllocator {
 public:
  explicit PinnedAllocator(model::CausalLm& model) : model_(model) {}
  std::byte* allocate(std::size_t bytes) override { return model_.allocate_host(bytes); }
  void deallocate(std::byte* data, std::size_t bytes) override { model_.deallocate_host(data, bytes); }
  void poison(std::byte*, std::size_t) override {}

 private:
  model::CausalLm& model_;
};

}  // namespace

kv::KvGeometry geometry_of(const model::ModelInfo& info) {
  return {info.layers, info.kv_heads, info.head_dim, kv::format_named(info.kv_dtype)};
}

kv::RecordIdentity record_identity(const model::ModelInfo& info) {
  Sha256 sha;
  sha.update_field("model", info.fingerprint);
  sha.update_field("kv-dtype", info.kv_dtype);
  return {sha.digest(), geometry_of(info)};
}

// On the CPU both memories are the same, and large pages serve both well.
std::unique_ptr<kv::KvAllocator> device_allocator(model::CausalLm& model) {
  return on_cpu(model) ? kv::make_host_allocator() : std::make_unique<DeviceAllocator>(model);
}

std::unique_ptr<kv::KvAllocator> host_allocator(model::CausalLm& model) {
  return on_cpu(model) ? kv::make_host_allocator() : std::make_unique<PinnedAllocator>(model);
}

std::vector<std::unique_ptr<kv::Tier>> make_tiers(const TierOptions& options, kv::EvictionKind eviction,
                                                  model::CausalLm& model, Metrics& metrics,
                                                  std::function<void(kv::RecordSource&)> on_host_evict) {
  std::vector<std::unique_ptr<kv::Tier>> tiers;
  const std::size_t host_bytes = options.host_bytes.value_or(model.free_host_memory_bytes() / kHostShare);
  if (host_bytes > 0) {
    kv::HostTier::Options host;
    host.capacity_bytes = host_bytes;
    host.eviction = eviction;
    host.on_evict = std::move(on_host_evict);
    tiers.push_back(std::make_unique<kv::HostTier>(host, host_allocator(model)));
  }
  if (!options.disk_path.empty()) {
    kv::DiskTier::Options disk;
    disk.directory = options.disk_path;
    disk.capacity_bytes = options.disk_bytes;
    disk.eviction = eviction;
    disk.identity = record_identity(model.info());
    disk.on_evict = [&metrics] { metrics.cache_evictions(TierLabel::kDisk, EvictionLabel::kCapacity).add(); };
    disk.on_corrupt = [&metrics] { metrics.cache_corrupt(TierLabel::kDisk).add(); };
    disk.on_error = [&metrics] { metrics.tier_errors(TierLabel::kDisk).add(); };
    Result<std::unique_ptr<kv::DiskTier>> opened = kv::DiskTier::open(disk);
    if (!opened.ok()) {
      throw std::runtime_error(opened.error().message);
    }
    tiers.push_back(std::move(opened).value());
  }
  if (!options.remote_uri.empty()) {
    Result<std::unique_ptr<kv::RemoteStore>> store =
        kv::RemoteStore::open({.uri = options.remote_uri, .timeout = options.remote_timeout});
    if (!store.ok()) {
      throw std::runtime_error("--kv-remote: " + store.error().message);
    }
    log::info("remote KV: {}", (*store)->describe());
    tiers.push_back(std::make_unique<kv::RemoteTier>(kv::RemoteTier::Options{record_identity(model.info()), {}},
                                                     std::move(store).value()));
  }
  return tiers;
}

}  // namespace promptcached::engine
