#include "core/checkpoint/pre_tokenizers.h"

#include <algorithm>

namespace promptcached::checkpoint {
namespace {

using Json = nlohmann::json;

// The expressions stand in the models' own tokenizer.json.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

// "default" is what ggml does with files that were made before it knew any other.
constexpr std::array kPreTokenizers = {
    PreTokenizer{.name = "default", .splits = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    PreTokenizer{.name = "gpt-2", .gpt2_words = true},
    PreTokenizer{.name = "smollm", .individual_digits = true, .gpt2_words = true},
    PreTokenizer{.name = "starcoder", .individual_digits = true, .gpt2_words = true},
    PreTokenizer{.name = "refact", .individual_digits = true, .gpt2_words = true},
    PreTokenizer{.name = "codeshell", .individual_digits = true, .gpt2_words = true},
    PreTokenizer{.name = "llama-bpe", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    PreTokenizer{.name = "llama3", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    PreTokenizer{.name = "llama-v3", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    PreTokenizer{.name = "pixtral", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    PreTokenizer{.name = "falcon3", .splits = {kLlama3}, .whole_words = true, .adds_bos = true},
    PreTokenizer{.name = "dbrx", .splits = {kLlama3}},  // Phi-4
    PreTokenizer{.name = "smaug-bpe", .splits = {kLlama3}},
    PreTokenizer{.name = "qwen2", .splits = {kQwen2}, .nfc = true},
    PreTokenizer{.name = "deepseek-r1-qwen", .splits = {kQwen2}},
    PreTokenizer{.name = "tekken", .splits = {kTekken}, .whole_words = true, .adds_bos = true},
    PreTokenizer{.name = "gpt-4o", .splits = {kGpt4o}},  // Phi-4-mini
    PreTokenizer{.name = "deepseek-coder",
                 .splits = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}},
};

Json byte_level(bool gpt2_words) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", gpt2_words}};
}

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  const auto* const found = std::ranges::find(kPreTokenizers, name, &PreTokenizer::name);
  return found == kPreTokenizers.end() ? nullptr : found;
}

std::string known_pre_tokenizers() {
  std::string names;
  for (const PreTokenizer& pre : kPreTokenizers) {
    names += (names.empty() ? "" : ", ") + std::string(pre.name);
  }
  return names;
}

Json pre_tokenizer_json(const PreTokenizer& pre) {
  Json steps = Json::array();
  if (pre.individual_digits) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  for (const std::string_view split : pre.splits) {
    if (!split.empty()) {
      const Json pattern = {{"Regex", split}};
      steps.push_back({{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}});
    }
  }
  steps.push_back(byte_level(pre.gpt2_words));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json normalizer_json(const PreTokenizer& pre) { return pre.nfc ? Json{{"type", "NFC"}} : Json(nullptr); }

}  // namespace promptcached::checkpoint
