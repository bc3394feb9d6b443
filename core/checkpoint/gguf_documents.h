// The documents of a Hugging Face directory, made from a GGUF file's metadata.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/checkpoint/gguf.h"

namespace promptcached::checkpoint {

// Thread-safe. Each document is made when it is first asked for, once.
class GgufDocuments final {
 public:
  explicit GgufDocuments(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

  const GgufFile& file() const { return *file_; }

  // Nothing when a GGUF file has no such document. Throws std::runtime_error naming file and key at fault.
  std::optional<std::string> find(const std::string& document) const;

 private:
  std::shared_ptr<const GgufFile> file_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> made_;
};

}  // namespace promptcached::checkpoint
