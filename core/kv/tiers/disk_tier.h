// DiskTier: modules in a directory, one file each, for the next start of the server as well.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <variant>

#include "core/base/file_descriptor.h"
#include "core/base/status.h"
#include "core/kv/tiers/indexed_tier.h"

namespace promptcached::kv {

// DIR/modules/<key>.kv is a record as kv_record.h describes. A file is written under another name, synced, and renamed:
// under its own name it is whole. Which are there is found out by reading all headers at the start; nothing else is
// kept. A file that is cut short, damaged, of another version or for another model is removed when it is met.
//
// One process has the directory: it holds a lock on DIR/lock as long as it lives.
class DiskTier final : public IndexedTier<std::monostate> {
 public:
  struct Options {
    std::filesystem::path directory;
    std::size_t capacity_bytes = 0;
    EvictionKind eviction = EvictionKind::kCost;
    RecordIdentity identity;
    std::function<void()> on_evict;  // a record went to make room
    // What the start's scan finds; later, outcomes tell.
    std::function<void()> on_corrupt;  // a record of no use
    std::function<void()> on_error;    // one that cannot be read
  };
  // Creates what is missing, locks and scans. Errors, with what to do: the directory cannot be made or written, or
  // another process has it.
  static Result<std::unique_ptr<DiskTier>> open(const Options& options);

  TierLabel name() const override { return TierLabel::kDisk; }
  LoadOutcome load(DeviceSink& sink) override;
  void prefetch(const ModuleKey& key) override;
  StoreOutcome store(RecordSource& source) override;
  void remove(const ModuleKey& key) override;
  void touch(const ModuleKey& key) override;

 private:
  DiskTier(const Options& options, FileDescriptor lock);
  void scan();
  void scan_file(const std::filesystem::path& file);
  std::filesystem::path path_of(const ModuleKey& key) const;
  bool reserve(std::size_t bytes);
  void give_back(std::size_t bytes);
  LoadOutcome read(int file, DeviceSink& sink);
  bool write(int file, RecordSource& source, std::size_t& bytes);
  void discard(ModuleKey key);  // file and entry, whose own key it may be
  void report(const std::function<void()>& callback) const;

  const Options options_;
  const std::filesystem::path modules_;
  const FileDescriptor lock_;
  std::size_t writing_bytes_ = 0;  // reserved for files that are being written
  std::uint64_t temporary_ = 0;    // of the next file's name while it is written
};

}  // namespace promptcached::kv
