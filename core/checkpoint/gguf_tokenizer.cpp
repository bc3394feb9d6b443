#include "core/checkpoint/gguf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/checkpoint/gguf_metadata.h"
#include "core/checkpoint/gguf_vocabulary.h"
#include "core/checkpoint/merge_derivation.h"
#include "core/checkpoint/pre_tokenizers.h"

namespace promptcached::checkpoint {
namespace {

using Json = nlohmann::json;
using Ids = std::unordered_map<std::string_view, std::size_t>;
using Merges = std::vector<std::pair<std::string_view, std::string_view>>;

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
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

// Ids by token. Refuses a token that is there twice: one of its ids could never be made.
Ids ids_by_token(const GgufFile& file, const GgufVocabulary& vocabulary) {
  Ids ids;
  ids.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto [other, is_new] = ids.emplace(vocabulary.tokens[id], id);
    if (!is_new) {
      refuse_metadata(file, kTokens,
                      "has '" + std::string(vocabulary.tokens[id]) + "' twice, as tokens " +
                          std::to_string(other->second) + " and " + std::to_string(id));
    }
  }
  return ids;
}

// "a b" as the pair of "a" and "b".
Merges listed_merges(const GgufFile& file, const Ids& ids) {
  Merges merges;
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
    const auto& [left, right] = merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    joined.assign(left).append(right);
    for (const std::string_view token : {left, right, std::string_view(joined)}) {
      if (!ids.contains(token)) {
        refuse_metadata(
            file, kMerges,
            "names '" + std::string(token) + "' at " + std::to_string(rank) + ", which is no token of the vocabulary");
      }
    }
  }
  return merges;
}

// All of tokenizer.json but for the vocabulary and the merges of its model.
Json tokenizer_frame(const GgufVocabulary& vocabulary) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(vocabulary)},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},  // BOS is in tokenizer_config.json
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false}}}};
}

void append_quoted(std::string_view text, std::string* out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  *out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20U) {
      *out += "\\u00";
      *out += kDigits[byte >> 4U];
      *out += kDigits[byte & 0xFU];
    } else {
      *out += c == '"' || c == '\\' ? "\\" : "";
      *out += c;
    }
  }
  *out += '"';
}

// The text of tokenizer.json. Vocabulary and merges go straight into it: as JSON values, half a million pairs take
// seconds.
std::string tokenizer_text(Json frame, const GgufVocabulary& vocabulary, const Merges& merges) {
  std::string text = frame["model"].dump();
  text.back() = ',';  // the brace comes at the end
  text += "\"vocab\":{";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    text += id > 0 ? "," : "";
    append_quoted(vocabulary.tokens[id], &text);
    text += ':' + std::to_string(id);
  }
  text += "},\"merges\":[";
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    text += rank > 0 ? ",[" : "[";
    append_quoted(merges[rank].first, &text);
    text += ',';
    append_quoted(merges[rank].second, &text);
    text += ']';
  }
  text += "]}}";
  frame.erase("model");
  std::string whole = frame.dump();
  whole.back() = ',';
  return whole + "\"model\":" + text;
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

std::string byte_level_bpe(const GgufFile& file, const GgufVocabulary& vocabulary) {
  if (!file.has(kMerges)) {
    refuse_metadata(file, kMerges, "is missing");
  }
  const PreTokenizer& pre = pre_tokenizer_of(file);
  Json tokenizer = tokenizer_frame(vocabulary);
  tokenizer["model"]["ignore_merges"] = pre.whole_words;
  tokenizer["normalizer"] = normalizer_json(pre);
  tokenizer["pre_tokenizer"] = pre_tokenizer_json(pre);
  tokenizer["decoder"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const Merges merges = listed_merges(file, ids_by_token(file, vocabulary));
  return tokenizer_text(std::move(tokenizer), vocabulary, merges);
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
    scores.reserve(tokens);
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

Merges derived_merges(const GgufFile& file, const GgufVocabulary& vocabulary) {
  std::vector<bool> takes_part;
  takes_part.reserve(vocabulary.kinds.size());
  for (const GgufTokenKind kind : vocabulary.kinds) {
    takes_part.push_back(kind == GgufTokenKind::kNormal || kind == GgufTokenKind::kUserDefined);
  }
  const std::vector<float> scores = merge_scores(file, vocabulary.tokens.size());
  Merges merges;
  for (const DerivedMerge& merge : derive_merges(vocabulary.tokens, scores, takes_part)) {
    merges.emplace_back(vocabulary.tokens[merge.left], vocabulary.tokens[merge.right]);
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

std::string sentencepiece_bpe(const GgufFile& file, GgufVocabulary vocabulary) {
  constexpr const char* kExtraSpaces = "tokenizer.ggml.remove_extra_whitespaces";
  if (file.boolean(kExtraSpaces).value_or(false)) {
    refuse_metadata(file, kExtraSpaces, "is true, which is not supported");
  }
  std::vector<std::string> spellings;
  if (is_gemma(file)) {
    vocabulary = with_mergeable_spaces(std::move(vocabulary), &spellings);
  }
  const Ids ids = ids_by_token(file, vocabulary);
  const Merges merges = file.has(kMerges) ? listed_merges(file, ids) : derived_merges(file, vocabulary);
  Json tokenizer = tokenizer_frame(vocabulary);
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
  return tokenizer_text(std::move(tokenizer), vocabulary, merges);
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
  return sentencepiece ? sentencepiece_bpe(file, std::move(vocabulary)) : byte_level_bpe(file, vocabulary);
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
