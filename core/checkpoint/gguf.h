// GgufFile: a GGUF v3 file, mapped and checked before anything is read from it (the format: ggml's docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/stored_tensors.h"

namespace promptcached::checkpoint {

class GgufFile final {
 public:
  // Throws std::runtime_error naming the file and the field, key or tensor at fault.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
  ~GgufFile();

  const std::filesystem::path& path() const;

  // Metadata by key. Absent: nothing (an empty vector). A value of another type is refused by throwing
  // std::runtime_error that names the key; any integer type serves for integer(), any number for number().
  bool has(const std::string& key) const;
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  std::optional<bool> boolean(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::vector<std::string_view> texts(const std::string& key) const;  // into the mapped file
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<float> numbers(const std::string& key) const;
  std::vector<std::string> keys() const;

  // Tensors under their names in the file, shapes slowest dimension first ([out, in]). dtype: "F32", "F16", "BF16",
  // "Q4_0", …
  const StoredTensors& tensors() const;
};

// Whether the file begins with GGUF's magic; false when it cannot be read.
bool is_gguf(const std::filesystem::path& path);

}  // namespace promptcached::checkpoint
