#include "tests/unit/tokenizer/support.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

namespace promptcached::testing {
namespace {

const std::filesystem::path kSourceDirectory = PROMPTCACHED_SOURCE_DIR;

}  // namespace

std::filesystem::path oracle_directory() { return kSourceDirectory / "tests" / "data" / "oracle"; }

std::filesystem::path model_directory() {
  if (const char* given = std::getenv("PROMPTCACHED_TEST_MODEL"); given != nullptr && *given != '\0') {
    return given;
  }
  return kSourceDirectory / "models" / "smollm2-135m-instruct";
}

std::filesystem::path default_gguf() { return model_directory().string() + ".Q4_1.gguf"; }

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error(path.string() + ": cannot be read");
  }
  return Json::parse(file);
}

const std::vector<NamedTokenizer>& oracle_tokenizers() {
  static const std::vector<NamedTokenizer> kTokenizers = [] {
    const std::filesystem::path oracle = oracle_directory();
    std::vector<NamedTokenizer> list;
    list.push_back({"smollm2", load_tokenizer(model_directory()), oracle / "tokenizer_corpus.json"});
    for (const std::string name : {"metaspace-tokenizer", "llama2-tokenizer"}) {
      list.push_back({name, load_tokenizer(oracle / name), oracle / name / "corpus.json"});
    }
    return list;
  }();
  return kTokenizers;
}

std::shared_ptr<const Tokenizer> default_tokenizer() { return oracle_tokenizers().front().tokenizer; }

std::shared_ptr<const Tokenizer> make_tokenizer(const Json& json, const TokenizerConfig& config) {
  auto tokenizer = HfTokenizer::create(json.dump(), config);
  if (!tokenizer) {
    throw std::runtime_error(tokenizer.error().message);
  }
  return std::move(tokenizer).value();
}

std::shared_ptr<const Tokenizer> changed_tokenizer(const std::string& folder, const Json& members) {
  const std::filesystem::path directory = oracle_directory() / folder;
  Json json = read_json(directory / "tokenizer.json");
  json.update(members);
  return make_tokenizer(json, read_tokenizer_config(directory));
}

std::vector<ChatMessage> messages_of(const Json& json) {
  std::vector<ChatMessage> messages;
  for (const Json& message : json) {
    messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  }
  return messages;
}

std::string written_with_roles(const RoleTexts& texts, const std::vector<ChatMessage>& messages,
                               bool add_generation_prompt) {
  std::string conversation = texts.bos;
  std::string before;
  for (const ChatMessage& message : messages) {
    const RoleText& role = message.role == "system" ? texts.system
                           : message.role == "user" ? texts.user
                                                    : texts.assistant;
    const bool after_system = before == "system" && message.role == "user" && texts.user_open_after_system;
    conversation += (after_system ? *texts.user_open_after_system : role.open) + message.content + role.close;
    before = message.role;
  }
  return add_generation_prompt ? conversation + texts.generation_prompt : conversation;
}

std::size_t Random::below(std::size_t bound) {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return static_cast<std::size_t>(state_ % bound);
}

}  // namespace promptcached::testing
