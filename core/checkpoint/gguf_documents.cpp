#include "core/checkpoint/gguf_documents.h"

#include "core/checkpoint/gguf_config.h"
#include "core/checkpoint/gguf_tokenizer.h"

namespace promptcached::checkpoint {
namespace {

std::optional<std::string> make(const GgufFile& file, const std::string& document) {
  if (document == "config.json") {
    return gguf_config(file).dump();
  }
  if (document == "generation_config.json") {
    return gguf_generation_config(file).dump();
  }
  if (document == "tokenizer.json") {
    return gguf_tokenizer_json(file);
  }
  if (document == "tokenizer_config.json") {
    return gguf_tokenizer_config(file).dump();
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> GgufDocuments::find(const std::string& document) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = made_.find(document); found != made_.end()) {
    return found->second;
  }
  std::optional<std::string> text = make(*file_, document);
  if (text) {
    made_.emplace(document, *text);
  }
  return text;
}

}  // namespace promptcached::checkpoint
