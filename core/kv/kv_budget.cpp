#include "core/kv/kv_budget.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace promptcached::kv {
namespace {

// Enough blocks for the comings and goings of a busy server, little enough to be no burden on an idle one.
constexpr std::size_t kMaxSpareBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxSpareShare = 8;  // at most this fraction of the capacity

}  // namespace

KvBudget::KvBudget(const Options& options, std::unique_ptr<KvAllocator> allocator)
    : options_(options),
      max_spare_(std::min(kMaxSpareBytes, options.capacity_bytes / kMaxSpareShare) / options.bytes_per_block),
      allocator_(std::move(allocator)) {
  spare_.reserve(max_spare_);
}

KvBudget::~KvBudget() { release_spare(); }

std::byte* KvBudget::allocate_module(std::size_t bytes) {
  std::byte* const data = allocate(bytes);
  if (data != nullptr) {
    module_bytes_ += bytes;
  }
  return data;
}

void KvBudget::free_module(std::byte* data, std::size_t bytes) {
  assert(bytes <= module_bytes_);
  deallocate(data, bytes);
  module_bytes_ -= bytes;
}

std::byte* KvBudget::allocate_block() {
  assert(options_.bytes_per_block <= free_bytes());
  std::byte* data = nullptr;
  if (spare_.empty()) {
    data = allocate(options_.bytes_per_block);
  } else {
    data = spare_.back();
    spare_.pop_back();
  }
  if (data != nullptr) {
    ++blocks_;
  }
  return data;
}

void KvBudget::free_block(std::byte* data) {
  assert(blocks_ > 0);
  if (spare_.size() < max_spare_) {
    if (options_.poison) {
      allocator_->poison(data, options_.bytes_per_block);
    }
    spare_.push_back(data);
  } else {
    deallocate(data, options_.bytes_per_block);
  }
  --blocks_;
}

void KvBudget::block_becomes_module() {
  assert(blocks_ > 0);
  --blocks_;
  module_bytes_ += options_.bytes_per_block;
}

std::byte* KvBudget::allocate(std::size_t bytes) {
  assert(bytes <= free_bytes());
  while (!spare_.empty() && free_bytes() - spare_bytes() < bytes) {
    release_one_spare();
  }
  std::byte* data = allocator_->allocate(bytes);
  if (data == nullptr && !spare_.empty()) {
    release_spare();
    data = allocator_->allocate(bytes);
  }
  if (data != nullptr && options_.poison) {
    allocator_->poison(data, bytes);  // so that KV read before it is written shows as well
  }
  return data;
}

void KvBudget::deallocate(std::byte* data, std::size_t bytes) {
  if (options_.poison) {
    allocator_->poison(data, bytes);
  }
  allocator_->deallocate(data, bytes);
}

void KvBudget::release_one_spare() {
  allocator_->deallocate(spare_.back(), options_.bytes_per_block);
  spare_.pop_back();
}

void KvBudget::release_spare() {
  while (!spare_.empty()) {
    release_one_spare();
  }
}

bool KvBudget::check_integrity() const {
  return module_bytes() + block_bytes() + spare_bytes() <= options_.capacity_bytes && spare_.size() <= max_spare_;
}

}  // namespace promptcached::kv
