#include "core/checkpoint/gguf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/checkpoint/gguf_metadata.h"
#include "core/checkpoint/gguf_vocabulary.h"
#include "core/checkpoint/merge_derivation.h"
#include "core/checkpoint/pre_tokenizers.h"

namespace promptcached::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kSpace = "\u2581";  // SentencePiece's spelling of a space

bool is_sentencepiece(const GgufFile& file) {
  const std::string model = required_text(file, kModel);
  if (model != "gpt2" && model != "llama") {
    refuse_metadata(file, kModel, "names '" + model + "', which is not read from GGUF; known: gpt2, llama");
  }
  return model == "llama";
}

// ---- What both kinds share ----

Json added_token(std::size_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Control tokens, and those that are found in text before everything else.
Json added_tokens(const GgufVocabulary& vocabulary) {
  Json added = Json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufTokenKind kind = vocabulary.kinds[id];
    const bool special = kind == GgufTokenKind::kControl || kind == GgufTokenKind::kUnknown;
    if (special || kind == GgufTokenKind::kUserDefined) {
      added.push_back(added_token(id, vocabulary.tokens[id], special));
    }
  }
  return added;
}

Json vocabulary_json(const GgufVocabulary& vocabulary) {
  Json::object_t ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    ids.emplace(vocabulary.tokens[id], id);
  }
  return ids;
}

// "a b" as the pair of "a" and "b".
Json listed_merges(const GgufFile& file, const GgufVocabulary& vocabulary) {
  const std::unordered_set<std::string_view> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
  Json::array_t merges;
  const std::vector<std::string_view> lines = file.texts(kMerges);
  merges.reserve(lines.size());
  std::string joined;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    const std::string_view line = lines[rank];
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      refuse_metadata(file, kMerges,
                      "has no pair of tokens at " + std::to_string(rank) + ": '" + std::string(line) + "'");
    }
    const std::string_view left = line.substr(0, space);
    const std::string_view right = line.substr(space + 1);
    joined.assign(left).append(right);
    for (const std::string_view token : {left, right, std::string_view(joined)}) {
      if (!known.contains(token)) {
        refuse_metadata(
            file, kMerges,
            "names '" + std::string(token) + "' at " + std::to_string(rank) + ", which is no token of the vocabulary");
      }
    }
    merges.push_back(Json::array({left, right}));
  }
  return merges;
}

Json bpe_model(const GgufVocabulary& vocabulary, Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", vocabulary_json(vocabulary)},
          {"merges", std::move(merges)}};
}

Json tokenizer_json(const GgufVocabulary& vocabulary, Json model) {
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", added_tokens(vocabulary)},
          {"normalizer", nullptr},     {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},  // BOS is in tokenizer_config.json
          {"model", std::move(model)}};
}

// ---- Byte-level BPE ----

const PreTokenizer& pre_tokenizer_of(const GgufFile& file) {
  const std::string name = file.text(kPre).value_or("default");
  const PreTokenizer* pre = find_pre_tokenizer(name);
  if (pre == nullptr) {
    refuse_metadata(file, kPre,
                    "names '" + name + "', which is not known; known: " + known_pre_tokenizers() +
                        "; use the model's Hugging Face directory");
  }
  return *pre;
}

Json byte_level_bpe(const GgufFile& file, const GgufVocabulary& vocabulary) {
  if (!file.has(kMerges)) {
    refuse_metadata(file, kMerges, "is missing");
  }
  const PreTokenizer& pre = pre_tokenizer_of(file);
  Json tokenizer = tokenizer_json(vocabulary, bpe_model(vocabulary, listed_merges(file, vocabulary)));
  tokenizer["model"]["ignore_merges"] = pre.whole_words;
  tokenizer["normalizer"] = normalizer_json(pre);
  tokenizer["pre_tokenizer"] = pre_tokenizer_json(pre);
  tokenizer["decoder"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  return tokenizer;
}

// ---- SentencePiece ----

bool is_gemma(const GgufFile& file) { return file.text("general.architecture").value_or("").starts_with("gemma"); }

// Gemma's runs of spaces are user-defined tokens that a GGUF file spells with spaces. To its tokenizer they are
// ordinary tokens, made by merges; so they are spelled and treated here. `spellings` holds the new texts.
GgufVocabulary with_mergeable_spaces(GgufVocabulary vocabulary, std::vector<std::string>* spellings) {
  const std::unordered_set<std::string_view> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
  spellings->reserve(vocabulary.tokens.size());  // views of them must stay
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string_view& token = vocabulary.tokens[id];
    if (vocabulary.kinds[id] != GgufTokenKind::kUserDefined || token.find_first_not_of(' ') != std::string_view::npos) {
      continue;
    }
    std::string spelling;
    for (std::size_t i = 0; i < token.size(); ++i) {
      spelling += kSpace;
    }
    if (!known.contains(spelling)) {
      token = spellings->emplace_back(std::move(spelling));
      vocabulary.kinds[id] = GgufTokenKind::kNormal;
    }
  }
  return vocabulary;
}

// Higher is merged earlier. Gemma's tokens are in the order of their merges, but not all of their scores are.
std::vector<float> merge_scores(const GgufFile& file, std::size_t tokens) {
  std::vector<float> scores;
  if (is_gemma(file)) {
    for (std::size_t id = 0; id < tokens; ++id) {
      scores.push_back(-static_cast<float>(id));  // exact up to 2^24
    }
    return scores;
  }
  if (!file.has(kScores)) {
    refuse_metadata(file, kScores, "is missing");
  }
  scores = file.numbers(kScores);
  if (scores.size() != tokens) {
    refuse_metadata(file, kScores,
                    "has " + std::to_string(scores.size()) + " entries for " + std::to_string(tokens) + " tokens");
  }
  return scores;
}

Json derived_merges(const GgufFile& file, const GgufVocabulary& vocabulary) {
  std::vector<bool> takes_part;
  for (const GgufTokenKind kind : vocabulary.kinds) {
    takes_part.push_back(kind == GgufTokenKind::kNormal || kind == GgufTokenKind::kUserDefined);
  }
  const std::vector<float> scores = merge_scores(file, vocabulary.tokens.size());
  Json::array_t merges;
  for (const DerivedMerge& merge : derive_merges(vocabulary.tokens, scores, takes_part)) {
    merges.push_back(Json::array({vocabulary.tokens[merge.left], vocabulary.tokens[merge.right]}));
  }
  return merges;
}

// Phi-3's own tokenizer takes the white space behind these control tokens, which a GGUF file does not say.
void add_phi3_strips(Json* added) {
  for (Json& token : *added) {
    const auto& content = token["content"].get_ref<const std::string&>();
    const bool strips = content == "</s>" || (content.starts_with("<|") && content != "<|endoftext|>");
    token["rstrip"] = strips && token["special"].get<bool>();
  }
}

// Mistral's third tokenizer, the one that has [INST] as a control token, puts a space in front of the start of a prompt
// alone; SentencePiece, and all others, also in front of text behind a control token.
bool prefixes_start_alone(const GgufVocabulary& vocabulary) {
  const auto found = std::ranges::find(vocabulary.tokens, "[INST]");
  return found != vocabulary.tokens.end() &&
         vocabulary.kinds[static_cast<std::size_t>(found - vocabulary.tokens.begin())] == GgufTokenKind::kControl;
}

void add_spaces(bool has_prefix, bool at_start_alone, Json* tokenizer) {
  const Json to_mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  Json decoders = Json::array({{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                               {{"type", "ByteFallback"}},
                               {{"type", "Fuse"}}});
  if (has_prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  (*tokenizer)["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  if (has_prefix && at_start_alone) {
    (*tokenizer)["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", kSpace}, {"prepend_scheme", "first"}, {"split", false}};
  } else if (has_prefix) {
    const Json prefix = {{"type", "Prepend"}, {"prepend", kSpace}};
    (*tokenizer)["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({prefix, to_mark})}};
  } else {
    (*tokenizer)["normalizer"] = to_mark;
  }
}

Json sentencepiece_bpe(const GgufFile& file, GgufVocabulary vocabulary) {
  constexpr const char* kExtraSpaces = "tokenizer.ggml.remove_extra_whitespaces";
  if (file.boolean(kExtraSpaces).value_or(false)) {
    refuse_metadata(file, kExtraSpaces, "is true, which is not supported");
  }
  std::vector<std::string> spellings;
  if (is_gemma(file)) {
    vocabulary = with_mergeable_spaces(std::move(vocabulary), &spellings);
  }
  Json merges = file.has(kMerges) ? listed_merges(file, vocabulary) : derived_merges(file, vocabulary);
  Json tokenizer = tokenizer_json(vocabulary, bpe_model(vocabulary, std::move(merges)));
  Json& model = tokenizer["model"];
  model["fuse_unk"] = model["byte_fallback"] = true;
  if (const std::optional<std::string> unknown = vocabulary.spelling(vocabulary.unknown)) {
    model["unk_token"] = *unknown;
  }
  const bool has_prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(!is_gemma(file));
  add_spaces(has_prefix, prefixes_start_alone(vocabulary), &tokenizer);
  if (file.text("general.architecture") == "phi3") {
    add_phi3_strips(&tokenizer["added_tokens"]);
  }
  return tokenizer;
}

bool adds_bos(const GgufFile& file, const GgufVocabulary& vocabulary) {
  constexpr const char* kKey = "tokenizer.ggml.add_bos_token";
  if (const std::optional<bool> stated = file.boolean(kKey)) {
    if (*stated && !vocabulary.bos) {
      refuse_metadata(file, kKey, "is true, but there is no 'tokenizer.ggml.bos_token_id'");
    }
    return *stated;
  }
  return vocabulary.bos && (is_sentencepiece(file) || pre_tokenizer_of(file).adds_bos);
}

}  // namespace

std::string gguf_tokenizer_json(const GgufFile& file) {
  if (std::optional<std::string> original = file.text("tokenizer.huggingface.json")) {
    return *std::move(original);
  }
  const bool sentencepiece = is_sentencepiece(file);
  GgufVocabulary vocabulary = read_gguf_vocabulary(file);
  return (sentencepiece ? sentencepiece_bpe(file, std::move(vocabulary)) : byte_level_bpe(file, vocabulary)).dump();
}

Json gguf_tokenizer_config(const GgufFile& file) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file);
  Json config = {{"add_bos_token", adds_bos(file, vocabulary)}, {"clean_up_tokenization_spaces", false}};
  const std::pair<const char*, std::optional<std::string>> texts[] = {
      {"bos_token", vocabulary.spelling(vocabulary.bos)},      {"eos_token", vocabulary.spelling(vocabulary.eos)},
      {"unk_token", vocabulary.spelling(vocabulary.unknown)},  {"pad_token", vocabulary.spelling(vocabulary.padding)},
      {"chat_template", file.text("tokenizer.chat_template")},
  };
  for (const auto& [name, text] : texts) {
    if (text) {
      config[name] = *text;
    }
  }
  return config;
}

}  // namespace promptcached::checkpoint
