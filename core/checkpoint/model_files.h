// ModelFiles: the documents and tensors of a model, wherever they are: in a Hugging Face directory, or in a GGUF file
// whose metadata says the same in other words.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/checkpoint/gguf_documents.h"
#include "core/checkpoint/stored_tensors.h"

namespace promptcached::checkpoint {

class ModelFiles final {
 public:
  // A path is its model: functions that read one take either. Throws std::runtime_error when there is no model at
  // `path`, or the GGUF file there is broken.
  ModelFiles(const std::filesystem::path& path);  // NOLINT(google-explicit-constructor)

  const std::filesystem::path& path() const { return path_; }

  // A document by its name in a Hugging Face directory: "config.json", "tokenizer.json". Nothing when the model has
  // none. Throws std::runtime_error naming a file that cannot be read.
  std::optional<std::string> find(const std::string& document) const;
  // The same; throws std::runtime_error when there is none.
  std::string read(const std::string& document) const;
  // What messages call the document.
  std::string where(const std::string& document) const;

  // All tensors, by their names in the file. Throws std::runtime_error naming file and tensor.
  StoredTensors tensors() const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const GgufDocuments> gguf_;  // null for a directory
};

}  // namespace promptcached::checkpoint
