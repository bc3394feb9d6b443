// Where an engine's KV lies: the model's device, and the tiers below it that the options ask for.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/metrics.h"
#include "core/kv/kv_codec.h"
#include "core/kv/kv_record.h"
#include "core/kv/tiers/tier.h"
#include "core/model/causal_lm.h"

namespace promptcached::engine {

inline constexpr std::size_t kHostShare = 4;

struct TierOptions {
  std::optional<std::size_t> host_bytes;  // 0: none; nullopt: a quarter of the host memory that is free
  std::filesystem::path disk_path{};      // empty: none
  std::size_t disk_bytes = std::size_t{64} << 30U;
  std::string remote_uri{};  // kv::RemoteStore's; empty: none
  std::chrono::milliseconds remote_timeout{2000};
  kv::KvCodec codec{};
};

kv::KvGeometry geometry_of(const model::ModelInfo& info);
// What is written down with every record, so that no other model's is ever read.
kv::RecordIdentity record_identity(const model::ModelInfo& info);

// Memory of the model's device, and of the computer for it.
std::unique_ptr<kv::KvAllocator> device_allocator(model::CausalLm& model);
std::unique_ptr<kv::KvAllocator> host_allocator(model::CausalLm& model);

// From the nearest to the farthest. Throws std::runtime_error with one line that says what to do when a directory
// cannot be used. `on_host_evict`: HostTier::Options.
std::vector<std::unique_ptr<kv::Tier>> make_tiers(const TierOptions& options, kv::EvictionKind eviction,
                                                  model::CausalLm& model, Metrics& metrics,
                                                  std::function<void(kv::RecordSource&)> on_host_evict);

}  // namespace promptcached::engine
