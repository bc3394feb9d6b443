// Constraints, compiled for the real tokenizers, and what they let a model say.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "core/guide/grammar_compiler.h"
#include "core/guide/token_bytes.h"
#include "tests/catch.h"

namespace promptcached::guide {
namespace {

std::filesystem::path data(const std::string& folder) {
  return std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests/data/oracle" / folder;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const std::filesystem::path& directory) {
  return load_tokenizer(directory);
}

// The default model's where it is there, which has one token for most of what JSON needs.
std::filesystem::path model_directory() {
  const char* const given = std::getenv("PROMPTCACHED_MODEL");
  return given != nullptr ? given : std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "models/smollm2-135m-instruct";
}

bool is_allowed(const TokenMask& mask, TokenId id) {
  const auto index = static_cast<std::size_t>(id);
  return ((mask[index / 32] >> (index % 32)) & 1) != 0;
}

struct Walk {
  std::string text;
  bool ended = false;  // by itself, or with an end token
};

// A compiler, and answers drawn from what its grammars allow, as a model without any sense would.
class GuideFixture {
 public:
  static constexpr std::int32_t kExtra = 40;  // logits that no token belongs to

  explicit GuideFixture(const std::filesystem::path& directory)
      : tokenizer(tokenizer_of(directory)),
        vocab(static_cast<std::int32_t>(tokenizer->vocab_size()) + kExtra),
        compiler(tokenizer, vocab, {kEnd}) {}

  std::shared_ptr<const Grammar> compile(Syntax syntax, const std::string& text) {
    auto grammar = compiler.compile({syntax, text, "field"});
    if (!grammar) {
      FAIL(text << ": " << grammar.error().message);
    }
    return *grammar;
  }

  std::string refusal(Syntax syntax, const std::string& text) {
    const auto grammar = compiler.compile({syntax, text, "field"});
    if (grammar) {
      return {};
    }
    CHECK(grammar.error().code == ErrorCode::kInvalidField);
    CHECK(grammar.error().param == "field");
    return grammar.error().message;
  }

  Walk walk(const Grammar& grammar, unsigned seed, int max_tokens) {
    Matcher matcher = *grammar.start();
    TokenMask mask(mask_words(static_cast<std::size_t>(vocab)));
    std::mt19937 random(seed);
    Walk walk;
    std::vector<TokenId> ids;
    for (int i = 0; i < max_tokens && !walk.ended; ++i) {
      REQUIRE(matcher.write_mask(mask).ok());
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < vocab; ++id) {
        if (is_allowed(mask, id)) {
          allowed.push_back(id);
        }
      }
      REQUIRE_FALSE(allowed.empty());
      CHECK(allowed.back() < vocab - kExtra);
      const TokenId picked = allowed[random() % allowed.size()];
      if (picked == kEnd) {
        walk.ended = true;
        break;
      }
      ids.push_back(picked);
      const Result<bool> over = matcher.accept(picked);
      REQUIRE(over.ok());
      walk.ended = *over;
    }
    walk.text = tokenizer->decode(ids);
    return walk;
  }

  static constexpr TokenId kEnd = 2;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::int32_t vocab;
  GrammarCompiler compiler;
};

std::vector<std::filesystem::path> directories() {
  std::vector<std::filesystem::path> all = {data("metaspace-tokenizer"), data("llama2-tokenizer")};
  if (std::filesystem::exists(model_directory() / "tokenizer.json")) {
    all.push_back(model_directory());
  }
  return all;
}

constexpr const char* kPerson = R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},)"
                                R"("age":{"type":"integer","minimum":0,"maximum":99},"tags":{"type":"array",)"
                                R"("items":{"enum":["a","b"]},"maxItems":2}},"required":["name","age","tags"],)"
                                R"("additionalProperties":false})";

TEST_CASE("what a schema lets through is what it describes, in its members' order") {
  for (const auto& directory : directories()) {
    CAPTURE(directory);
    GuideFixture fixture(directory);
    const auto grammar = fixture.compile(Syntax::kJsonSchema, kPerson);
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Walk walk = fixture.walk(*grammar, seed, 200);
      CAPTURE(walk.text);
      REQUIRE(walk.ended);
      const auto json = nlohmann::ordered_json::parse(walk.text, nullptr, false);
      REQUIRE(json.is_object());
      REQUIRE(json.size() == 3);
      CHECK(json.begin().key() == "name");
      CHECK(json["name"].is_string());
      CHECK(json["age"].is_number_integer());
      CHECK(json["tags"].size() <= 2);
    }
  }
}

TEST_CASE("a regex holds for the whole answer") {
  for (const auto& directory : directories()) {
    CAPTURE(directory);
    GuideFixture fixture(directory);
    const auto grammar = fixture.compile(Syntax::kRegex, "[a-c]{2,5}-[0-9]{2}");
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Walk walk = fixture.walk(*grammar, seed, 20);
      CAPTURE(walk.text);
      CHECK(walk.ended);
      CHECK(std::regex_match(walk.text, std::regex("[a-c]{2,5}-[0-9]{2}")));
    }
  }
}

TEST_CASE("a grammar in Lark, with a schema in it") {
  GuideFixture fixture(data("metaspace-tokenizer"));
  const auto grammar = fixture.compile(Syntax::kLark,
                                       "start: \"<call>\" body \"</call>\"\n"
                                       "body: %json {\"type\": \"boolean\"}\n");
  const std::string text = fixture.walk(*grammar, 1, 40).text;
  CHECK((text == "<call>true</call>" || text == "<call>false</call>"));
}

TEST_CASE("an end token comes only where the text may end, and blanks have an end") {
  GuideFixture fixture(data("metaspace-tokenizer"));
  const auto digits = fixture.compile(Syntax::kRegex, "[0-9]{2,}");
  Matcher matcher = *digits->start();
  TokenMask mask(mask_words(static_cast<std::size_t>(fixture.vocab)));
  const TokenId digit = *fixture.tokenizer->token_to_id("<0x31>");
  for (int i = 0; i < 4; ++i) {
    REQUIRE(matcher.write_mask(mask).ok());
    CHECK(is_allowed(mask, GuideFixture::kEnd) == (i >= 2));
    CHECK(is_allowed(mask, digit));
    REQUIRE(matcher.accept(digit).ok());
  }
  // At most one space where JSON allows any number of blanks.
  const auto object = fixture.compile(Syntax::kJsonSchema, R"({"type":"object"})");
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::string text = fixture.walk(*object, seed, 30).text;
    CHECK(text.substr(0, 3) != "{  ");
    CHECK(text.find_first_of("\n\t") == std::string::npos);
  }
}

TEST_CASE("matchers of one grammar know nothing of each other") {
  GuideFixture fixture(data("metaspace-tokenizer"));
  const auto grammar = fixture.compile(Syntax::kJsonSchema, kPerson);
  const std::string alone = fixture.walk(*grammar, 7, 200).text;
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&fixture, &grammar, &text = texts[i]] {
      Matcher matcher = *grammar->start();
      TokenMask mask(mask_words(static_cast<std::size_t>(fixture.vocab)));
      std::mt19937 random(7);
      std::vector<TokenId> ids;
      for (bool ended = false; !ended && matcher.write_mask(mask).ok();) {
        std::vector<TokenId> allowed;
        for (TokenId id = 0; id < fixture.vocab; ++id) {
          if (is_allowed(mask, id)) {
            allowed.push_back(id);
          }
        }
        ids.push_back(allowed[random() % allowed.size()]);
        ended = *matcher.accept(ids.back());
      }
      text = fixture.tokenizer->decode(ids);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::string& text : texts) {
    CHECK(text == alone);
  }
}

TEST_CASE("a refusal says what is wrong") {
  GuideFixture fixture(data("metaspace-tokenizer"));
  const auto has = [&](Syntax syntax, const std::string& text, const std::string& part) {
    const std::string message = fixture.refusal(syntax, text);
    CAPTURE(text, message);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.rfind("field", 0) == 0);
    CHECK(message.size() < 2000);
  };
  has(Syntax::kJsonSchema, R"({"type":"object","propertyNames":{"pattern":"a"}})", "propertyNames");
  has(Syntax::kJsonSchema, R"({"type":"strong"})", "strong");
  has(Syntax::kJsonSchema, R"({"type":"string","minLength":5,"maxLength":2})", "minLength (5)");
  has(Syntax::kJsonSchema, R"({"$ref":"#/$defs/none"})", "none");
  has(Syntax::kJsonSchema, "{", "no valid JSON");
  has(Syntax::kJsonSchema, "5", "object");
  has(Syntax::kRegex, "(a", "unclosed group");
  has(Syntax::kRegex, "(?=a)b", "look-ahead");
  has(Syntax::kLark, "start: other", "other");
  has(Syntax::kLark, "", "");
  CHECK(fixture
            .refusal(Syntax::kJsonSchema, R"({"type":"object","propertyNames":{"pattern":"a"},)"
                                          R"("x-guidance":{"lenient":true}})")
            .empty());
}

TEST_CASE("what would cost too much is refused, or bounded") {
  GuideFixture fixture(data("metaspace-tokenizer"));
  const auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) {
      all += text;
    }
    return all;
  };
  CHECK_FALSE(fixture.refusal(Syntax::kRegex, repeated("a", 200'000)).empty());
  CHECK_FALSE(fixture.refusal(Syntax::kRegex, repeated("(", 50'000) + "a" + repeated(")", 50'000)).empty());
  CHECK_FALSE(
      fixture.refusal(Syntax::kLark, "start: " + repeated("(", 50'000) + "\"a\"" + repeated(")", 50'000)).empty());
  CHECK_FALSE(
      fixture.refusal(Syntax::kJsonSchema, repeated(R"({"items":)", 10'000) + "{}" + repeated("}", 10'000)).empty());
  CHECK_FALSE(fixture.refusal(Syntax::kJsonSchema, R"({"type":"integer","multipleOf":999999937})").empty());
  for (const char* regex : {"((((((a{1,100}){1,100}){1,100}){1,100}){1,100}){1,100})b", "(.*a){50}.{500}"}) {
    const auto grammar = fixture.compile(Syntax::kRegex, regex);
    CHECK_FALSE(fixture.walk(*grammar, 3, 20).text.empty());
  }
}

TEST_CASE("tokens stand for the bytes that the stream decoder shows") {
  for (const auto& directory : directories()) {
    CAPTURE(directory);
    const auto tokenizer = tokenizer_of(directory);
    const auto count = static_cast<std::int32_t>(tokenizer->vocab_size());
    const std::vector<TokenBytes> tokens = token_bytes(*tokenizer, count);
    const std::string text = "{\"a b\": [1, \"Grüße 😀\"]}\n  x";
    const std::vector<TokenId> ids = *tokenizer->encode(text);
    std::string joined;
    for (const TokenId id : ids) {
      CHECK_FALSE(tokens[static_cast<std::size_t>(id)].is_control);
      joined += tokens[static_cast<std::size_t>(id)].bytes;
    }
    CHECK((joined == text || joined == " " + text));  // the space that some put in front of a text
    CHECK(tokens[GuideFixture::kEnd].is_control);
    CHECK_FALSE(tokens[GuideFixture::kEnd].bytes.empty());
  }
}

TEST_CASE("the same constraint is compiled once") {
  GuideFixture fixture(data("metaspace-tokenizer"));
  const auto one = fixture.compile(Syntax::kRegex, "abc");
  CHECK(fixture.compile(Syntax::kRegex, "abc") == one);
  CHECK(fixture.compile(Syntax::kRegex, "abd") != one);
  for (int i = 0; i < 100; ++i) {
    fixture.compile(Syntax::kRegex, "x" + std::to_string(i));
  }
  CHECK(fixture.compile(Syntax::kRegex, "abc") != one);  // forgotten meanwhile
}

}  // namespace
}  // namespace promptcached::guide
