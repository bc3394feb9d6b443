#include <algorithm>

#include "core/base/utf8.h"
#include "tests/catch.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {
namespace {

using Ids = std::vector<TokenId>;

// Words end in a token with a suffix, as in the first BPE models: the space between words appears with the next token.
std::shared_ptr<const Tokenizer> suffix_tokenizer() {
  Json vocab;
  int next = 0;
  for (const char* token : {"<unk>", "a", "b", "c", "a</w>", "b</w>", "\u00e9</w>", "</w>", ".</w>"}) {
    vocab[token] = next++;
  }
  return make_tokenizer({{"version", "1.0"},
                         {"added_tokens", Json::array()},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                         {"post_processor", nullptr},
                         {"decoder", {{"type", "BPEDecoder"}, {"suffix", "</w>"}}},
                         {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "<unk>"}}}});
}

// The tokenizers of the oracle, and one for each other decoder that tokenizer.json files use.
std::vector<NamedTokenizer> all_tokenizers() {
  std::vector<NamedTokenizer> list = oracle_tokenizers();
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", true}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  const Json gemma = {{"type", "Sequence"}, {"decoders", {replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const Json word_piece = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  for (const Json& decoder : {metaspace, gemma, word_piece, Json()}) {
    list.push_back({"decoder " + decoder.dump(), changed_tokenizer("metaspace-tokenizer", {{"decoder", decoder}}), {}});
  }
  list.push_back({"word suffixes", suffix_tokenizer(), {}});
  return list;
}

Ids random_ids(const Tokenizer& tokenizer, Random& random, std::size_t count) {
  Ids ids;
  while (ids.size() < count) {
    // Runs of the low ids, where control tokens and byte tokens are, between ids from everywhere.
    const bool low = random.below(3) == 0;
    const std::size_t bound = low ? 300 : static_cast<std::size_t>(tokenizer.vocab_size());
    for (std::size_t run = 1 + random.below(5); run > 0 && ids.size() < count; --run) {
      ids.push_back(static_cast<TokenId>(random.below(bound)));
    }
  }
  return ids;
}

struct Streamed {
  std::string text;
  bool always_valid = true;
};

Streamed stream(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& context, const Ids& ids) {
  StreamDecoder decoder(tokenizer, context);
  Streamed streamed;
  for (const TokenId id : ids) {
    const std::string delta = decoder.push(id);
    streamed.always_valid = streamed.always_valid && is_valid_utf8(delta);
    streamed.text += delta;
  }
  streamed.text += decoder.finish();
  return streamed;
}

// decode(context + ids) minus decode(context), where the context does not end within a character.
std::string full_difference(const Tokenizer& tokenizer, const Ids& context, const Ids& ids) {
  Ids all = context;
  all.insert(all.end(), ids.begin(), ids.end());
  const std::string before = tokenizer.decode(context);
  const std::string text = tokenizer.decode(all);
  REQUIRE(text.starts_with(before));
  return text.substr(before.size());
}

bool ends_within_character(const Tokenizer& tokenizer, const Ids& ids) {
  Utf8Assembler assembler;
  assembler.push(tokenizer.decode_bytes(ids));
  return assembler.pending();
}

}  // namespace

TEST_CASE("joined deltas equal the full decode, for random tokens") {
  for (const NamedTokenizer& named : all_tokenizers()) {
    CAPTURE(named.name);
    Random random(11);
    for (int round = 0; round < 150; ++round) {
      Ids context = random_ids(*named.tokenizer, random, random.below(14));
      while (ends_within_character(*named.tokenizer, context)) {
        context.pop_back();
      }
      const Ids ids = random_ids(*named.tokenizer, random, random.below(120));
      const Streamed streamed = stream(named.tokenizer, context, ids);
      CAPTURE(context, ids);
      REQUIRE(streamed.always_valid);
      REQUIRE(streamed.text == full_difference(*named.tokenizer, context, ids));
    }
  }
}

TEST_CASE("joined deltas equal the text, for real text in every script") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    const Ids context = named.tokenizer->encode("The answer:").value();
    for (const Json& entry : read_json(named.corpus)) {
      const Ids ids = entry["plain_ids"].get<Ids>();
      CAPTURE(named.name, entry["text"]);
      CHECK(stream(named.tokenizer, {}, ids).text == entry["plain_decoded"].get<std::string>());
      CHECK(stream(named.tokenizer, context, ids).text == full_difference(*named.tokenizer, context, ids));
    }
  }
}

TEST_CASE("each delta is given out at the first token that completes it") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    CAPTURE(named.name);
    const Ids context = named.tokenizer->encode("x").value();
    const Ids ids =
        named.tokenizer->encode("\u5199\u4e00\u53e5\u8bdd \U0001F642\U0001F469\u200D\U0001F467 \u00e9 fin").value();
    StreamDecoder decoder(named.tokenizer, context);
    std::string given;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      given += decoder.push(ids[i]);
      // All whole characters of the bytes so far, not one fewer.
      const Ids so_far(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      Ids all = context;
      all.insert(all.end(), so_far.begin(), so_far.end());
      Utf8Assembler whole;
      CHECK("x" + given == whole.push(named.tokenizer->decode_bytes(all)));
      CHECK(decoder.pending() == whole.pending());
    }
    CHECK(decoder.finish().empty());
  }
}

// S10: decoded piece by piece, a Metaspace tokenizer loses spaces that belong to the text.
TEST_CASE("the first token keeps its space behind a prompt, and loses the tokenizer's own at the start") {
  const auto tokenizer = load_tokenizer(oracle_directory() / "metaspace-tokenizer");
  const Ids word = tokenizer->encode_continuation(" the").value();
  const Ids prompt = tokenizer->encode("of").value();
  CHECK(stream(tokenizer, prompt, word).text == " the");
  CHECK(stream(tokenizer, {}, word).text == "the");
  SECTION("control tokens between do not count as text") {
    Ids context = prompt;
    context.insert(context.end(), 20, TokenId{2});
    CHECK(stream(tokenizer, context, word).text == " the");
    CHECK(stream(tokenizer, {1}, word).text == "the");
  }
  SECTION("spaces alone") {
    const TokenId space = tokenizer->token_to_id("\u2581").value();
    CHECK(stream(tokenizer, {}, {space, space, space}).text == "  ");
    CHECK(stream(tokenizer, prompt, {space, space, space}).text == "   ");
    CHECK(stream(tokenizer, {}, Ids(500, space)).text == std::string(499, ' '));
  }
}

TEST_CASE("generation cut within a character shows one U+FFFD, as the full decode does") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    CAPTURE(named.name);
    const Ids context = named.tokenizer->encode("x").value();
    const Ids all = named.tokenizer->encode("x\U0001FAE8\U0001FAE8").value();
    for (std::size_t count = context.size(); count <= all.size(); ++count) {
      const Ids ids(all.begin() + static_cast<std::ptrdiff_t>(context.size()),
                    all.begin() + static_cast<std::ptrdiff_t>(count));
      const Streamed streamed = stream(named.tokenizer, context, ids);
      CHECK(streamed.text == full_difference(*named.tokenizer, context, ids));
      CHECK(std::count(streamed.text.begin(), streamed.text.end(), '\xEF') <= 1);
    }
  }
}

TEST_CASE("nothing is pending before a token, and finish gives the tail once") {
  const auto tokenizer = load_tokenizer(oracle_directory() / "metaspace-tokenizer");
  const TokenId lead = tokenizer->token_to_id("<0xC3>").value();
  const TokenId rest = tokenizer->token_to_id("<0xA9>").value();
  StreamDecoder fresh(tokenizer, Ids{lead});
  CHECK_FALSE(fresh.pending());
  CHECK(fresh.finish().empty());
  SECTION("a character that the prompt began is given out whole") {
    StreamDecoder decoder(tokenizer, Ids{lead});
    CHECK(decoder.push(rest) == "\u00e9");
  }
  SECTION("finish") {
    StreamDecoder decoder(tokenizer, {});
    CHECK(decoder.push(lead).empty());
    CHECK(decoder.pending());
    CHECK(decoder.finish() == "\uFFFD");
    CHECK_FALSE(decoder.pending());
    CHECK(decoder.finish().empty());
  }
}

namespace {

// Counts the tokens it is asked to decode: what a stream costs.
class CountingTokenizer final : public Tokenizer {
 public:
  explicit CountingTokenizer(std::shared_ptr<const Tokenizer> real) : real_(std::move(real)) {}
  Result<Ids> encode(std::string_view text, bool special) const override { return real_->encode(text, special); }
  std::string decode(std::span<const TokenId> ids, bool skip) const override { return real_->decode(ids, skip); }
  std::string decode_bytes(std::span<const TokenId> ids, bool skip) const override {
    decoded_ += ids.size();
    return real_->decode_bytes(ids, skip);
  }
  std::vector<TextPiece> split_control_tokens(std::string_view text) const override {
    return real_->split_control_tokens(text);
  }
  std::vector<std::pair<std::size_t, std::size_t>> control_token_spans(std::string_view text) const override {
    return real_->control_token_spans(text);
  }
  std::optional<TokenId> token_to_id(std::string_view token) const override { return real_->token_to_id(token); }
  std::optional<TokenId> bos_id() const override { return real_->bos_id(); }
  TokenId placeholder_id() const override { return real_->placeholder_id(); }
  std::int64_t vocab_size() const override { return real_->vocab_size(); }

  std::size_t decoded() const { return decoded_; }

 private:
  std::shared_ptr<const Tokenizer> real_;
  mutable std::size_t decoded_ = 0;
};

}  // namespace

TEST_CASE("a token's cost does not grow with the stream, whatever it is made of") {
  const auto real = load_tokenizer(oracle_directory() / "metaspace-tokenizer");
  const auto id = [&](const char* spelling) { return real->token_to_id(spelling).value(); };
  const std::vector<Ids> patterns = {
      {id("<0xFF>")},                // invalid for ever
      {id("<0xF0>"), id("<0x9F>")},  // a character begun for ever
      {2},                           // control tokens only
      {1 << 30},                     // ids that are none
      {id("\u2581")},                // spaces only
      {id("a"), id("<0xE2>"), id("<0x82>"), id("<0xAC>")},
      {2, id("\u2581"), 2, 2},
  };
  for (const Ids& pattern : patterns) {
    for (const bool with_context : {false, true}) {
      const auto counting = std::make_shared<CountingTokenizer>(real);
      constexpr std::size_t kTokens = 3000;
      StreamDecoder decoder(counting, with_context ? Ids(12, id("a")) : Ids{});
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < kTokens; ++i) {
        bytes += decoder.push(pattern[i % pattern.size()]).size();
      }
      CAPTURE(pattern, with_context, bytes);
      CHECK(counting->decoded() < kTokens * 40);
    }
  }
}

}  // namespace promptcached::testing
