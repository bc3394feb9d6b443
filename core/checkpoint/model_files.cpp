#include "core/checkpoint/model_files.h"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/checkpoint/safetensors.h"

namespace promptcached::checkpoint {
namespace {

// A folder with GGUF files in it, which is how they are often downloaded, is not itself a model.
void refuse_folder_of_gguf(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / "config.json")) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".gguf") {
      names.push_back(entry.path().string());
    }
  }
  if (names.size() == 1) {
    throw std::runtime_error(directory.string() + " has no config.json; name the GGUF file in it: " + names.front());
  }
  if (!names.empty()) {
    throw std::runtime_error(directory.string() + " has no config.json; name one of the " +
                             std::to_string(names.size()) + " GGUF files in it");
  }
}

}  // namespace

ModelFiles::ModelFiles(const std::filesystem::path& path) : path_(path) {
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("there is no model at " + path.string() +
                             ": neither a directory with config.json nor a GGUF file");
  }
  if (std::filesystem::is_directory(path)) {
    refuse_folder_of_gguf(path);
  } else if (is_gguf(path)) {
    gguf_ = std::make_shared<const GgufDocuments>(GgufFile::open(path));
  } else {
    throw std::runtime_error(path.string() + " is neither a directory nor a GGUF file");
  }
}

std::optional<std::string> ModelFiles::find(const std::string& document) const {
  if (gguf_ != nullptr) {
    return gguf_->find(document);
  }
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

std::string ModelFiles::where(const std::string& document) const {
  return gguf_ != nullptr ? path_.string() + " (" + document + ")" : (path_ / document).string();
}

StoredTensors ModelFiles::tensors() const {
  if (gguf_ == nullptr) {
    return read_safetensors(path_);
  }
  const StoredTensors& stored = gguf_->file().tensors();
  return {stored.source(), stored.all(), TensorNaming::kGguf};
}

}  // namespace promptcached::checkpoint
