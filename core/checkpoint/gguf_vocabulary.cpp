#include "core/checkpoint/gguf_vocabulary.h"

#include <algorithm>
#include <array>

#include "core/checkpoint/gguf_metadata.h"

namespace promptcached::checkpoint {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kKinds = "tokenizer.ggml.token_type";

// How chat models spell the end of a turn. Most files do not say which token it is, and without it an answer would run
// on into turns of its own making.
constexpr std::array<std::string_view, 4> kEndsOfTurn = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"};

std::vector<GgufTokenKind> read_kinds(const GgufFile& file, std::size_t tokens) {
  // Without it, control tokens could not be told from text that spells them.
  if (!file.has(kKinds)) {
    refuse_metadata(file, kKinds, "is missing");
  }
  const std::vector<std::int64_t> numbers = file.integers(kKinds);
  if (numbers.size() != tokens) {
    refuse_metadata(file, kKinds,
                    "has " + std::to_string(numbers.size()) + " entries for " + std::to_string(tokens) + " tokens");
  }
  std::vector<GgufTokenKind> kinds;
  kinds.reserve(numbers.size());
  for (const std::int64_t number : numbers) {
    if (number < 1 || number > 6) {
      refuse_metadata(file, kKinds, "has the unknown kind " + std::to_string(number));
    }
    kinds.push_back(static_cast<GgufTokenKind>(number));
  }
  return kinds;
}

std::optional<std::int64_t> read_id(const GgufFile& file, const std::string& name, std::size_t tokens) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  const std::optional<std::int64_t> id = file.integer(key);
  if (id && (*id < 0 || *id >= static_cast<std::int64_t>(tokens))) {
    refuse_metadata(file, key, "is " + std::to_string(*id) + ", but there are " + std::to_string(tokens) + " tokens");
  }
  return id;
}

std::optional<std::int64_t> find_end_of_turn(const GgufVocabulary& vocabulary) {
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const bool marks = vocabulary.kinds[id] == GgufTokenKind::kControl;
    if (marks && std::ranges::find(kEndsOfTurn, vocabulary.tokens[id]) != kEndsOfTurn.end()) {
      return static_cast<std::int64_t>(id);
    }
  }
  return std::nullopt;
}

std::vector<std::int64_t> read_end_tokens(const GgufFile& file, const GgufVocabulary& vocabulary) {
  std::optional<std::int64_t> end_of_turn = read_id(file, "eot", vocabulary.tokens.size());
  if (!end_of_turn) {
    end_of_turn = find_end_of_turn(vocabulary);
  }
  std::vector<std::int64_t> ends;
  for (const auto& id : {vocabulary.eos, end_of_turn, read_id(file, "eom", vocabulary.tokens.size())}) {
    if (id && std::ranges::find(ends, *id) == ends.end()) {
      ends.push_back(*id);
    }
  }
  return ends;
}

}  // namespace

std::optional<std::string> GgufVocabulary::spelling(std::optional<std::int64_t> id) const {
  return id ? std::optional(std::string(tokens[static_cast<std::size_t>(*id)])) : std::nullopt;
}

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
  GgufVocabulary vocabulary;
  vocabulary.tokens = file.texts(kTokens);
  if (vocabulary.tokens.empty()) {
    refuse_metadata(file, kTokens, "is missing");
  }
  const std::size_t size = vocabulary.tokens.size();
  vocabulary.kinds = read_kinds(file, size);
  vocabulary.bos = read_id(file, "bos", size);
  vocabulary.eos = read_id(file, "eos", size);
  vocabulary.unknown = read_id(file, "unknown", size);
  vocabulary.padding = read_id(file, "padding", size);
  vocabulary.end_tokens = read_end_tokens(file, vocabulary);
  return vocabulary;
}

}  // namespace promptcached::checkpoint
