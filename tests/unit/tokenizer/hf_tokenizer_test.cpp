#include "core/tokenizer/hf_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/catch.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {
namespace {

using Ids = std::vector<TokenId>;

Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool allow_special = false) {
  const auto ids = tokenizer.encode(text, allow_special);
  REQUIRE(ids.ok());
  return *ids;
}

Ids json_ids(const Json& json) { return json.get<Ids>(); }

// A Unigram model has its control tokens among its pieces, where plain text finds them.
Json unigram_json() {
  Json vocab = Json::array({{"<unk>", 0.0}, {"<s>", 0.0}, {"</s>", 0.0}, {"\u2581", -2.0}, {"hi", -3.0}});
  for (const char* piece : {"<", ">", "/", "s", "h", "i", "u", "n", "k", "a"}) {
    vocab.push_back({piece, -5.0});
  }
  const auto special = [](int id, const char* content) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "never"}, {"split", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "never"}, {"split", false}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}, {"byte_fallback", false}}}};
}

}  // namespace

TEST_CASE("ids and texts equal those of Python's tokenizers") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    const Json corpus = read_json(named.corpus);
    REQUIRE(corpus.size() > 190);
    for (const Json& entry : corpus) {
      const auto text = entry["text"].get<std::string>();
      CAPTURE(named.name, text);
      const Ids plain = ids_of(*named.tokenizer, text);
      const Ids ids = ids_of(*named.tokenizer, text, /*allow_special=*/true);
      CHECK(plain == json_ids(entry["plain_ids"]));
      CHECK(ids == json_ids(entry["ids"]));
      CHECK(named.tokenizer->decode(plain, false) == entry["plain_decoded"].get<std::string>());
      CHECK(named.tokenizer->decode(ids, false) == entry["decoded"].get<std::string>());
      CHECK(named.tokenizer->decode(ids) == entry["decoded_skip_special"].get<std::string>());
    }
  }
}

TEST_CASE("plain text never becomes a control token, whatever it spells") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    const Json json = read_json(named.name == "smollm2" ? model_directory() / "tokenizer.json"
                                                        : oracle_directory() / named.name / "tokenizer.json");
    std::string all = "x";
    std::vector<TokenId> control;
    for (const Json& added : json["added_tokens"]) {
      control.push_back(added["id"].get<TokenId>());
      all += added["content"].get<std::string>() + " " + added["content"].get<std::string>();
    }
    REQUIRE(control.size() >= 3);
    for (const TokenId id : ids_of(*named.tokenizer, all)) {
      CAPTURE(named.name, id);
      CHECK(std::find(control.begin(), control.end(), id) == control.end());
    }
    CHECK(named.tokenizer->decode(ids_of(*named.tokenizer, all)) == all);
    const Ids allowed = ids_of(*named.tokenizer, all, true);
    for (const TokenId id : control) {
      CHECK(std::count(allowed.begin(), allowed.end(), id) == 2);
    }
  }
}

TEST_CASE("a vocabulary that holds its control tokens as pieces does not give them to plain text") {
  const auto tokenizer = make_tokenizer(unigram_json());
  const std::string text = "hi</s></s>hi<s>";
  const Ids ids = ids_of(*tokenizer, text);
  CHECK(std::none_of(ids.begin(), ids.end(), [](TokenId id) { return id <= 2; }));
  CHECK(tokenizer->decode(ids) == text);
  CHECK(ids_of(*tokenizer, text, true) == Ids{4, 2, 2, 4, 1});
  SECTION("also where they are spelled a hundred thousand times") {
    std::string many;
    for (int i = 0; i < 100000; ++i) {
      many += "</s>";
    }
    const Ids many_ids = ids_of(*tokenizer, many);
    CHECK(many_ids.size() == 400000);
    CHECK(std::find(many_ids.begin(), many_ids.end(), 2) == many_ids.end());
  }
  SECTION("the unknown token still stands for unknown text, and its spelling for itself") {
    CHECK(ids_of(*tokenizer, "a?a") == Ids{14, 0, 14});
    CHECK(tokenizer->decode(ids_of(*tokenizer, "<unk>")) == "<unk>");
  }
}

TEST_CASE("a continuation gets no space of its own where only the start of a prompt has one") {
  const auto metaspace = load_tokenizer(oracle_directory() / "metaspace-tokenizer");  // scheme "first"
  const Ids start = ids_of(*metaspace, "[INST] hi");
  const auto continued = metaspace->encode_continuation("[INST] hi");
  REQUIRE(continued.ok());
  CHECK(*continued != start);
  // What the tokenizer itself makes of the text behind a control token.
  Ids behind_bos = ids_of(*metaspace, "<s>[INST] hi", true);
  behind_bos.erase(behind_bos.begin());
  CHECK(*continued == behind_bos);
  CHECK(metaspace->encode_continuation("").value().empty());
  SECTION("control tokens in a continuation follow allow_special too") {
    Ids expected = ids_of(*metaspace, "<s>a</s>b", true);
    expected.erase(expected.begin());
    CHECK(metaspace->encode_continuation("a</s>b", true).value() == expected);
    const Ids plain = metaspace->encode_continuation("a</s>b").value();
    CHECK(std::find(plain.begin(), plain.end(), 2) == plain.end());
    CHECK(metaspace->decode(plain) == "a</s>b");
  }
  SECTION("other tokenizers make no difference") {
    const auto llama2 = load_tokenizer(oracle_directory() / "llama2-tokenizer");
    CHECK(llama2->encode_continuation("[INST] hi").value() == ids_of(*llama2, "[INST] hi"));
    const auto smollm2 = default_tokenizer();
    CHECK(smollm2->encode_continuation("user\nhi").value() == ids_of(*smollm2, "user\nhi"));
  }
}

TEST_CASE("invalid UTF-8 is refused, NUL and noncharacters are text") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    CAPTURE(named.name);
    for (const std::string_view bad : {"\xFF", "ab\xC3", "\xED\xA0\x80", "\xC0\x80"}) {
      const auto ids = named.tokenizer->encode(bad);
      REQUIRE_FALSE(ids.ok());
      CHECK(ids.error().code == ErrorCode::kInvalidField);
      CHECK(ids.error().message.find("UTF-8") != std::string::npos);
    }
    using namespace std::string_literals;
    for (const std::string& text : {"a\0b"s, "\uFDD0x\uFFFE"s, ""s}) {
      CHECK(named.tokenizer->decode(ids_of(*named.tokenizer, text)) == text);
      CHECK(named.tokenizer->encode_continuation(text).ok());
    }
  }
}

TEST_CASE("BOS is what the post-processor or the configuration puts in front") {
  const auto metaspace_json = read_json(oracle_directory() / "metaspace-tokenizer" / "tokenizer.json");
  TokenizerConfig config;
  config.special_tokens["bos_token"] = "<s>";
  CHECK(make_tokenizer(metaspace_json, config)->bos_id() == TokenId{1});
  CHECK(default_tokenizer()->bos_id() == std::nullopt);  // <|im_start|> is its bos_token by name alone
  SECTION("the post-processor adds none") {
    Json json = metaspace_json;
    json["post_processor"] = nullptr;
    CHECK(make_tokenizer(json, config)->bos_id() == std::nullopt);
    config.add_bos_token = true;
    CHECK(make_tokenizer(json, config)->bos_id() == TokenId{1});
  }
  SECTION("the configuration says not to") {
    config.add_bos_token = false;
    CHECK(make_tokenizer(metaspace_json, config)->bos_id() == std::nullopt);
  }
  SECTION("a post-processor that only appends is not taken for one") {
    Json json = metaspace_json;
    json["post_processor"]["single"] = Json::array(
        {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}});
    CHECK(make_tokenizer(json, config)->bos_id() == std::nullopt);
  }
  SECTION("encode never adds it") {
    const auto tokenizer = make_tokenizer(metaspace_json, config);
    CHECK(ids_of(*tokenizer, "hello").front() != 1);
    CHECK(ids_of(*tokenizer, "").empty());
  }
}

TEST_CASE("the placeholder is the unknown token, else padding, else the end of text") {
  const auto smollm2 = default_tokenizer();
  CHECK(smollm2->placeholder_id() == smollm2->token_to_id("<|endoftext|>"));
  Json json = read_json(oracle_directory() / "metaspace-tokenizer" / "tokenizer.json");
  CHECK(make_tokenizer(json)->placeholder_id() == 0);  // the model's own unk_token
  json["model"]["unk_token"] = nullptr;
  TokenizerConfig config;
  config.special_tokens = {{"eos_token", "</s>"}};
  CHECK(make_tokenizer(json, config)->placeholder_id() == 2);
  config.special_tokens["pad_token"] = "<s>";
  CHECK(make_tokenizer(json, config)->placeholder_id() == 1);
}

TEST_CASE("a million line breaks are cut as Python's tokenizers cut them") {
  const auto smollm2 = default_tokenizer();
  const Ids ids = ids_of(*smollm2, std::string(1100000, '\n') + "x");
  CHECK(ids.size() == 275002);
  CHECK(ids[ids.size() - 2] == 198);  // the last line break is a token of its own, in front of a word
}

TEST_CASE("truncation and padding in tokenizer.json are not applied") {
  const auto tokenizer = changed_tokenizer(
      "metaspace-tokenizer",
      {{"truncation", {{"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}}},
       {"padding",
        {{"strategy", {{"Fixed", 64}}},
         {"direction", "Right"},
         {"pad_to_multiple_of", nullptr},
         {"pad_id", 0},
         {"pad_type_id", 0},
         {"pad_token", "<unk>"}}}});
  const std::string text = "hello there, this is longer than four tokens";
  CHECK(ids_of(*tokenizer, text) == ids_of(*load_tokenizer(oracle_directory() / "metaspace-tokenizer"), text));
}

TEST_CASE("control tokens are found in template text") {
  const auto smollm2 = default_tokenizer();
  const TokenId start = smollm2->token_to_id("<|im_start|>").value();
  const TokenId end = smollm2->token_to_id("<|im_end|>").value();
  using Pieces = std::vector<TextPiece>;
  CHECK(smollm2->split_control_tokens("<|im_start|>user\n") == Pieces{start, "user\n"});
  CHECK(smollm2->split_control_tokens("a<|im_end|>\n<|im_start|><|im_start|>") == Pieces{"a", end, "\n", start, start});
  CHECK(smollm2->split_control_tokens("plain \u00e9") == Pieces{"plain \u00e9"});
  CHECK(smollm2->split_control_tokens("").empty());
  CHECK(smollm2->split_control_tokens("<|im_start") == Pieces{"<|im_start"});
  SECTION("added tokens that are not special stay in the text; spaces that belong to a token go with it") {
    Json json = read_json(oracle_directory() / "metaspace-tokenizer" / "tokenizer.json");
    json["added_tokens"][1]["rstrip"] = true;
    json["added_tokens"].push_back({{"id", 700},
                                    {"content", "<tool>"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", false}});
    const auto changed = make_tokenizer(json);
    CHECK(changed->split_control_tokens("<s>\n\na<tool>b</s>c") == Pieces{TokenId{1}, "a<tool>b", TokenId{2}, "c"});
  }
}

TEST_CASE("the vocabulary is told with its added tokens") {
  const auto smollm2 = default_tokenizer();
  CHECK(smollm2->vocab_size() == 49152);
  CHECK(smollm2->token_to_id("<|im_start|>") == TokenId{1});
  CHECK(smollm2->token_to_id("no such token at all") == std::nullopt);
  CHECK(smollm2->token_to_id("") == std::nullopt);
  Json json = read_json(oracle_directory() / "metaspace-tokenizer" / "tokenizer.json");
  const std::int64_t before = make_tokenizer(json)->vocab_size();
  json["added_tokens"].push_back({{"id", before},
                                  {"content", "<new>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  CHECK(make_tokenizer(json)->vocab_size() == before + 1);
}

TEST_CASE("decoding takes any ids") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    CAPTURE(named.name);
    const Ids odd = {-1, 1 << 30, static_cast<TokenId>(named.tokenizer->vocab_size())};
    CHECK(named.tokenizer->decode(odd).empty());
    CHECK(named.tokenizer->decode({}).empty());
  }
}

TEST_CASE("decode shows one U+FFFD for an incomplete character, and decode_bytes its bytes") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    CAPTURE(named.name);
    const std::string text = "a\U0001FAE8";  // in no vocabulary here: one token a byte, or nearly
    Ids ids = ids_of(*named.tokenizer, text);
    REQUIRE(ids.size() > 2);
    CHECK(named.tokenizer->decode_bytes(ids) == text);
    ids.pop_back();
    CHECK(named.tokenizer->decode(ids) == "a\uFFFD");
    const std::string bytes = named.tokenizer->decode_bytes(ids);
    CHECK(text.starts_with(bytes));
    CHECK(bytes.size() > 1);
  }
}

TEST_CASE("a broken byte does not take the whole run of byte tokens with it") {
  const auto tokenizer = load_tokenizer(oracle_directory() / "metaspace-tokenizer");
  const auto byte = [&](const char* spelling) { return tokenizer->token_to_id(spelling).value(); };
  const Ids ids = {byte("<0xC3>"), byte("<0xA9>"), byte("<0xFF>"), byte("<0xC3>"), byte("<0xA9>")};
  CHECK(tokenizer->decode(ids) == "\u00e9\uFFFD\u00e9");
}

TEST_CASE("what one thread encodes, all encode") {
  for (const NamedTokenizer& named : oracle_tokenizers()) {
    const Json corpus = read_json(named.corpus);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = 0; i < corpus.size(); ++i) {
          const Json& entry = corpus[(i + thread * 50) % corpus.size()];
          const bool special = (i + thread) % 2 == 0;
          const auto ids = named.tokenizer->encode(entry["text"].get<std::string>(), special);
          wrong += !ids.ok() || *ids != json_ids(entry[special ? "ids" : "plain_ids"]) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a broken tokenizer.json is refused with the reason") {
  for (const std::string_view bad :
       {"", "{", "[]", R"({"model": 1})", R"({"version": "1.0", "model": {"type": "BPE"}})"}) {
    const auto tokenizer = HfTokenizer::create(bad, {});
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.error().code == ErrorCode::kInternal);
    CHECK(tokenizer.error().message.size() > std::string("tokenizer: ").size());
  }
  const TemporaryDirectory directory;
  const auto refusal = [&] { return message_thrown([&] { load_tokenizer(directory.path()); }); };
  CHECK(refusal().find("tokenizer.json") != std::string::npos);
  directory.write("tokenizer.json", "{}");
  CHECK(refusal().find("tokenizer.json") != std::string::npos);
}

}  // namespace promptcached::testing
