// MappedFile: a whole file in memory, mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace promptcached::checkpoint {

// A whole file, mapped read-only for as long as the object lives.
class MappedFile final {
 public:
  // Throws std::runtime_error naming the file when it cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Says that the pages that lie wholly within `range` will not be read soon, so that they leave resident memory.
  void release(std::span<const std::byte> range) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace promptcached::checkpoint
