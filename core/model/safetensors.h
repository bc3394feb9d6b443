// Safetensors files, mapped into memory and checked before anything is read from them. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace promptcached::model {

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

// One tensor inside a mapped file. `file` keeps the mapping alive.
struct StoredTensor {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", "F16", "I64", …
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // shape and dtype agree with its size; may be unaligned
  std::shared_ptr<const MappedFile> file;
};

// Bytes of one element, or 0 for a dtype this version does not know.
std::size_t stored_element_bytes(const std::string& dtype);

// All tensors of a model directory: model.safetensors, or the shards that model.safetensors.index.json names.
class StoredTensors final {
 public:
  // Throws std::runtime_error naming the file, and tensor or field, at fault: a file missing, shorter or longer than
  // its header says, a range that is out of bounds, overlaps another or disagrees with its shape, a shard without a
  // tensor the index promises.
  static StoredTensors open(const std::filesystem::path& directory);
  // All tensors of one file; throws as open() does.
  static StoredTensors open_file(const std::filesystem::path& path);

  // nullptr when there is no such tensor.
  const StoredTensor* find(const std::string& name) const;
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  // The file that was read, or the index of the shards: for messages.
  const std::filesystem::path& source() const { return source_; }

 private:
  std::filesystem::path source_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace promptcached::model
