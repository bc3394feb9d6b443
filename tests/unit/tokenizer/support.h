// What the tokenizer tests share: where their data is, and tokenizers made from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/hf_tokenizer.h"
#include "tests/temporary_directory.h"

namespace promptcached::testing {

using Json = nlohmann::json;

// tests/data/oracle: made by Hugging Face's own libraries (tests/tools/make_oracle.py).
std::filesystem::path oracle_directory();

// The default model: $PROMPTCACHED_TEST_MODEL, or models/smollm2-135m-instruct.
std::filesystem::path model_directory();

// The same model as the GGUF file it was made from, which lies beside the directory.
std::filesystem::path default_gguf();

Json read_json(const std::filesystem::path& path);

// One tokenizer for each way to spell text: byte-level, Metaspace with byte fallback, normalizer with byte fallback.
struct NamedTokenizer {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::filesystem::path corpus;
};
const std::vector<NamedTokenizer>& oracle_tokenizers();

// The default model's tokenizer; loaded once.
std::shared_ptr<const Tokenizer> default_tokenizer();

// The tokenizer of oracle_directory()/<folder> with members of its tokenizer.json replaced.
std::shared_ptr<const Tokenizer> changed_tokenizer(const std::string& folder, const Json& members);

std::shared_ptr<const Tokenizer> make_tokenizer(const Json& json, const TokenizerConfig& config = {});

std::vector<ChatMessage> messages_of(const Json& json);

// A conversation written with role tags, as PML writes it.
std::string written_with_roles(const RoleTexts& texts, const std::vector<ChatMessage>& messages,
                               bool add_generation_prompt = true);

// The message of the std::runtime_error that `call` throws; empty if it throws none.
template <typename Call>
std::string message_thrown(const Call& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

// Small, fast and the same on every machine, unlike std::uniform_int_distribution.
class Random final {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435769U + 1) {}
  // 0 to `bound` - 1.
  std::size_t below(std::size_t bound);

 private:
  std::uint64_t state_;
};

}  // namespace promptcached::testing
