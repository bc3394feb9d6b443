// KvBudget: the pool's memory, counted. Who may have it is the pool's affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv/kv_memory.h"

namespace promptcached::kv {

// Every byte of the capacity is a module's, a block's in use, or free. Some free bytes are spare blocks: allocated,
// and handed out again without the cost of fresh pages. They are given up as soon as the bytes are wanted otherwise,
// so the allocator never holds more than the capacity.
//
// Not thread-safe: the pool's lock guards it.
class KvBudget final {
 public:
  struct Options {
    std::size_t capacity_bytes = 0;
    std::size_t bytes_per_block = 0;
    bool poison = false;
  };

  KvBudget(const Options& options, std::unique_ptr<KvAllocator> allocator);
  ~KvBudget();
  KvBudget(const KvBudget&) = delete;
  KvBudget& operator=(const KvBudget&) = delete;

  // `bytes` must be at most free_bytes(). Nullptr when the device itself has no memory left; nothing is counted then.
  std::byte* allocate_module(std::size_t bytes);
  void free_module(std::byte* data, std::size_t bytes);
  // The same; free_bytes() must be at least bytes_per_block().
  std::byte* allocate_block();
  void free_block(std::byte* data);
  void block_becomes_module();  // of as many bytes, where it lies
  // Gives the spare blocks' memory back to the device.
  void release_spare();

  KvAllocator& allocator() const { return *allocator_; }
  std::size_t capacity_bytes() const { return options_.capacity_bytes; }
  std::size_t bytes_per_block() const { return options_.bytes_per_block; }
  std::size_t module_bytes() const { return module_bytes_; }
  std::size_t block_bytes() const { return blocks_ * options_.bytes_per_block; }
  std::size_t free_bytes() const { return options_.capacity_bytes - module_bytes() - block_bytes(); }
  std::size_t blocks_in_use() const { return blocks_; }
  bool check_integrity() const;

 private:
  std::size_t spare_bytes() const { return spare_.size() * options_.bytes_per_block; }
  std::byte* allocate(std::size_t bytes);
  void deallocate(std::byte* data, std::size_t bytes);
  void release_one_spare();

  const Options options_;
  const std::size_t max_spare_;  // blocks
  const std::unique_ptr<KvAllocator> allocator_;
  std::size_t module_bytes_ = 0;
  std::size_t blocks_ = 0;  // in use
  std::vector<std::byte*> spare_;
};

}  // namespace promptcached::kv
