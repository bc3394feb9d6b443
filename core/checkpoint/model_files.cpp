#include "core/checkpoint/model_files.h"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/checkpoint/safetensors.h"

namespace promptcached::checkpoint {

ModelFiles::ModelFiles(const std::filesystem::path& path) : path_(path) {
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("there is no model at " + path.string() +
                             ": neither a directory with config.json nor a GGUF file");
  }
}

std::optional<std::string> ModelFiles::find(const std::string& document) const {
  const std::filesystem::path file = path_ / document;
  if (!std::filesystem::exists(file)) {
    return std::nullopt;
  }
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (stream) {
    text << stream.rdbuf();
  }
  if (!stream || stream.bad()) {
    throw std::runtime_error(file.string() + ": cannot be read");
  }
  return std::move(text).str();
}

std::string ModelFiles::read(const std::string& document) const {
  std::optional<std::string> text = find(document);
  if (!text) {
    throw std::runtime_error(where(document) + ": is missing");
  }
  return *std::move(text);
}

std::string ModelFiles::where(const std::string& document) const { return (path_ / document).string(); }

StoredTensors ModelFiles::tensors() const { return read_safetensors(path_); }

}  // namespace promptcached::checkpoint
