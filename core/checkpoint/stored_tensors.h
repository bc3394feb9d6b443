// Tensors as a model's files hold them, checked and in place. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/mapped_file.h"

namespace promptcached::checkpoint {

// One tensor inside a mapped file. `file` keeps the mapping alive.
struct StoredTensor {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", "F16", "I64", …
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // shape and dtype agree with its size; may be unaligned
  std::shared_ptr<const MappedFile> file;
};

// Whose names a file's tensors have: those of the model's own Hugging Face code, or llama.cpp's.
enum class TensorNaming { kHuggingFace, kGguf };

// All tensors of a model, by name.
class StoredTensors final {
 public:
  StoredTensors(std::filesystem::path source, std::map<std::string, StoredTensor> tensors,
                TensorNaming naming = TensorNaming::kHuggingFace)
      : source_(std::move(source)), tensors_(std::move(tensors)), naming_(naming) {
    for (const auto& [name, tensor] : tensors_) {
      bytes_ += tensor.bytes.size();
    }
  }

  // nullptr when there is no such tensor.
  const StoredTensor* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  // The file that was read, or the index of its shards: for messages.
  const std::filesystem::path& source() const { return source_; }
  TensorNaming naming() const { return naming_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::filesystem::path source_;
  std::map<std::string, StoredTensor> tensors_;
  TensorNaming naming_;
  std::size_t bytes_ = 0;
};

}  // namespace promptcached::checkpoint
