// GgufFile: a GGUF v3 file, mapped and checked before anything is read from it (the format: ggml's docs/gguf.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/stored_tensors.h"

namespace promptcached::checkpoint {

struct GgufContents;

class GgufFile final {
 public:
  // Reads the file's metadata and where its tensors lie, not the tensors. Throws std::runtime_error naming the file and
  // the field, key or tensor at fault, in one line.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::filesystem::path& path() const;

  // Metadata by key. Absent: nothing (an empty vector). A value of another type is refused by throwing
  // std::runtime_error that names the key; any integer type that fits serves for integer(), any number for number().
  // The last five are for arrays, those before them for single values: is_array() tells which, where a key may hold
  // either.
  bool has(std::string_view key) const;
  bool is_array(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;      // valid UTF-8, else refused
  std::vector<std::string_view> texts(std::string_view key) const;  // the same; into the mapped file
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;
  std::vector<bool> booleans(std::string_view key) const;
  std::vector<std::string> keys() const;

  // Tensors under their names in the file, shapes slowest dimension first ([out, in]). dtype: "F32", "F16", "BF16",
  // "Q4_0", … (gguf_quants.h); bytes: the rows one after another, each a whole number of blocks.
  const StoredTensors& tensors() const;

 private:
  explicit GgufFile(std::unique_ptr<const GgufContents> contents);

  std::unique_ptr<const GgufContents> contents_;
};

// Whether the file begins with GGUF's magic; false when it cannot be read.
bool is_gguf(const std::filesystem::path& path);

}  // namespace promptcached::checkpoint
