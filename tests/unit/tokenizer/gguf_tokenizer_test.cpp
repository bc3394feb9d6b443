// Tokenizers read from GGUF files: the ids are those that the original tokenizers give, and what is wrong with a file's
// vocabulary is refused by key.
#include "core/checkpoint/gguf_tokenizer.h"

#include <functional>

#include "core/checkpoint/model_files.h"
#include "core/checkpoint/pre_tokenizers.h"
#include "core/tokenizer/chat_template.h"
#include "tests/catch.h"
#include "tests/fakes/memory_file.h"
#include "tests/unit/checkpoint/gguf_builder.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {
namespace {

using checkpoint::boolean;
using checkpoint::f32s;
using checkpoint::GgufBuilder;
using checkpoint::GgufFile;
using checkpoint::i32s;
using checkpoint::Metadata;
using checkpoint::ModelFiles;
using checkpoint::text;
using checkpoint::texts;
using checkpoint::u32;
using checkpoint::with;
using checkpoint::without;
using Ids = std::vector<TokenId>;

Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool allow_special = false) {
  const auto ids = tokenizer.encode(text, allow_special);
  REQUIRE(ids.ok());
  return *ids;
}

std::shared_ptr<const GgufFile> open(const Metadata& values) {
  const fakes::MemoryFile file(GgufBuilder().values(values).build());
  return GgufFile::open(file.path());
}

const Metadata kByteLevel = {{"tokenizer.ggml.model", text("gpt2")},
                             {"tokenizer.ggml.pre", text("gpt-2")},
                             {"tokenizer.ggml.tokens", texts({"a", "b", "ab", "<|end|>", "\u0120", "1", "2"})},
                             {"tokenizer.ggml.token_type", i32s({1, 1, 1, 3, 1, 1, 1})},
                             {"tokenizer.ggml.merges", texts({"a b"})},
                             {"tokenizer.ggml.eos_token_id", u32(3)}};

const Metadata kSentencePiece = {
    {"general.architecture", text("llama")},
    {"tokenizer.ggml.model", text("llama")},
    {"tokenizer.ggml.tokens", texts({"<unk>", "<s>", "a", "b", "\u2581", "ab", "\u2581a", "<sep>", "x", "<0x0A>"})},
    {"tokenizer.ggml.token_type", i32s({2, 3, 1, 1, 1, 1, 1, 4, 1, 6})},
    {"tokenizer.ggml.scores", f32s({0, 0, -5, -6, -7, -2, -1, -1000, -8, 0})},
    {"tokenizer.ggml.unknown_token_id", u32(0)},
    {"tokenizer.ggml.bos_token_id", u32(1)}};

std::shared_ptr<const Tokenizer> tokenizer_of(const Metadata& values) {
  return make_tokenizer(Json::parse(checkpoint::gguf_tokenizer_json(*open(values))));
}

// What is thrown, without the file's name; one line.
std::string refusal(const Metadata& values, const std::function<void(const GgufFile&)>& read) {
  const auto file = open(values);
  const std::string message = message_thrown([&] { read(*file); });
  const std::string start = file->path().string() + ": metadata key ";
  CHECK(message.starts_with(start));
  CHECK(message.find('\n') == std::string::npos);
  return message.substr(std::min(start.size(), message.size()));
}

std::string refused_tokenizer(const Metadata& values) {
  return refusal(values, [](const GgufFile& file) { checkpoint::gguf_tokenizer_json(file); });
}

TEST_CASE("the default model's GGUF file tokenises as its directory does", "[tokenizer][gguf]") {
  const auto tokenizer = load_tokenizer(default_gguf());
  for (const Json& entry : read_json(oracle_directory() / "tokenizer_corpus.json")) {
    const auto text = entry["text"].get<std::string>();
    CAPTURE(text);
    CHECK(ids_of(*tokenizer, text, true) == entry["ids"].get<Ids>());
    CHECK(ids_of(*tokenizer, text) == entry["plain_ids"].get<Ids>());
  }
  const auto original = default_tokenizer();
  CHECK(tokenizer->vocab_size() == original->vocab_size());
  CHECK(tokenizer->bos_id() == original->bos_id());
  CHECK(tokenizer->placeholder_id() == original->placeholder_id());
}

TEST_CASE("the default model's GGUF file means what its directory says", "[tokenizer][gguf]") {
  const ModelFiles gguf(default_gguf());
  const ModelFiles directory(model_directory());
  for (const char* document : {"config.json", "generation_config.json"}) {
    const Json made = Json::parse(gguf.read(document));
    const Json original = Json::parse(directory.read(document));
    for (const auto& [field, value] : made.items()) {
      CAPTURE(document, field);
      REQUIRE(original.contains(field));
      CHECK(value == original[field]);
    }
  }
  const RoleTexts made = load_role_texts(gguf);
  const RoleTexts original = load_role_texts(directory);
  CHECK(made.origin == original.origin);
  CHECK(made.system.open == original.system.open);
  CHECK(made.user.open == original.user.open);
  CHECK(made.assistant.close == original.assistant.close);
  CHECK(made.generation_prompt == original.generation_prompt);
}

TEST_CASE("SentencePiece vocabularies give the ids of the original tokenizers", "[tokenizer][gguf]") {
  const std::string name = GENERATE("spm-llama", "spm-gemma");
  const std::filesystem::path folder = oracle_directory().parent_path() / "gguf";
  const auto tokenizer = load_tokenizer(folder / (name + ".gguf"));
  for (const Json& entry : read_json(folder / (name + ".json"))) {
    const auto text = entry["text"].get<std::string>();
    CAPTURE(name, text);
    // SentencePiece makes no control token from text, transformers do.
    CHECK(ids_of(*tokenizer, text, /*allow_special=*/name == "spm-gemma") == entry["ids"].get<Ids>());
  }
  CHECK(tokenizer->bos_id() == tokenizer->token_to_id(name == "spm-llama" ? "<s>" : "<bos>"));
}

TEST_CASE("control tokens are found where they are allowed alone", "[tokenizer][gguf]") {
  const auto tokenizer = tokenizer_of(kByteLevel);
  CHECK(ids_of(*tokenizer, "ab<|end|>a", true) == Ids{2, 3, 0});
  CHECK(tokenizer->decode(Ids{2, 3, 4, 0}) == "ab a");
}

TEST_CASE("user-defined tokens are found before merges", "[tokenizer][gguf]") {
  const auto tokenizer = tokenizer_of(kSentencePiece);
  CHECK(ids_of(*tokenizer, "a<sep>\n") == Ids{6, 7, 4, 9});
  CHECK(ids_of(*tokenizer, "xab") == Ids{4, 8, 5});
  CHECK(ids_of(*tokenizer, "ab") == Ids{6, 3});  // the space's merge has the higher score
}

TEST_CASE("a space stands before the start alone where [INST] is a control token", "[tokenizer][gguf]") {
  Metadata values = kSentencePiece;
  values["tokenizer.ggml.tokens"] = texts({"<unk>", "<s>", "a", "b", "\u2581", "ab", "\u2581a", "[INST]"});
  values["tokenizer.ggml.token_type"] = i32s({2, 3, 1, 1, 1, 1, 1, 3});
  values["tokenizer.ggml.scores"] = f32s({0, 0, -5, -6, -7, -2, -1, 0});
  CHECK(ids_of(*tokenizer_of(values), "a[INST]a", true) == Ids{6, 7, 2});
  values["tokenizer.ggml.token_type"] = i32s({2, 3, 1, 1, 1, 1, 1, 4});
  CHECK(ids_of(*tokenizer_of(values), "a[INST]a", true) == Ids{6, 7, 6});
}

TEST_CASE("every known pre-tokenizer makes a tokenizer", "[tokenizer][gguf]") {
  std::string names = checkpoint::known_pre_tokenizers() + ", ";
  for (std::size_t end = names.find(", "); end != std::string::npos; end = names.find(", ")) {
    const std::string name = names.substr(0, end);
    names.erase(0, end + 2);
    CAPTURE(name);
    const auto tokenizer = tokenizer_of(with(kByteLevel, {{"tokenizer.ggml.pre", text(name)}}));
    CHECK(ids_of(*tokenizer, "ab a12") == Ids{2, 4, 0, 5, 6});
  }
}

TEST_CASE("BOS is put in front where the file or its tokenizer says so", "[tokenizer][gguf]") {
  const auto adds_bos = [](const Metadata& values) {
    return checkpoint::gguf_tokenizer_config(*open(values))["add_bos_token"].get<bool>();
  };
  const Metadata bos = {{"tokenizer.ggml.bos_token_id", u32(3)}};
  const Metadata llama3 = with(with(kByteLevel, bos), {{"tokenizer.ggml.pre", text("llama-bpe")}});
  CHECK(adds_bos(kSentencePiece));
  CHECK(!adds_bos(with(kSentencePiece, {{"tokenizer.ggml.add_bos_token", boolean(false)}})));
  CHECK(!adds_bos(with(kByteLevel, bos)));
  CHECK(adds_bos(llama3));
  CHECK(refusal(with(kByteLevel, {{"tokenizer.ggml.add_bos_token", boolean(true)}}), [](const GgufFile& file) {
          checkpoint::gguf_tokenizer_config(file);
        }) == "'tokenizer.ggml.add_bos_token' is true, but there is no 'tokenizer.ggml.bos_token_id'");
}

TEST_CASE("a tokenizer.json in the metadata is taken as it is", "[tokenizer][gguf]") {
  CHECK(checkpoint::gguf_tokenizer_json(*open({{"tokenizer.huggingface.json", text("{}")}})) == "{}");
}

TEST_CASE("vocabularies that cannot be read are refused by key", "[tokenizer][gguf]") {
  CHECK(refused_tokenizer(without(kByteLevel, "tokenizer.ggml.model")) == "'tokenizer.ggml.model' is missing");
  CHECK(refused_tokenizer(with(kByteLevel, {{"tokenizer.ggml.model", text("t5")}})) ==
        "'tokenizer.ggml.model' names 't5', which is not read from GGUF; known: gpt2, llama");
  const std::string unknown = refused_tokenizer(with(kByteLevel, {{"tokenizer.ggml.pre", text("viking")}}));
  CHECK(unknown.starts_with("'tokenizer.ggml.pre' names 'viking', which is not known; known: default, gpt-2, "));
  CHECK(refused_tokenizer(without(kByteLevel, "tokenizer.ggml.merges")) == "'tokenizer.ggml.merges' is missing");
  CHECK(refused_tokenizer(with(kByteLevel, {{"tokenizer.ggml.merges", texts({"a b", "a a"})}})) ==
        "'tokenizer.ggml.merges' names 'aa' at 1, which is no token of the vocabulary");
  CHECK(refused_tokenizer(with(kByteLevel, {{"tokenizer.ggml.merges", texts({"ab"})}})) ==
        "'tokenizer.ggml.merges' has no pair of tokens at 0: 'ab'");
  CHECK(refused_tokenizer(with(kByteLevel, {{"tokenizer.ggml.tokens", texts({"a", "b", "ab", "a", "c", "1", "2"})}})) ==
        "'tokenizer.ggml.tokens' has 'a' twice, as tokens 0 and 3");
  CHECK(refused_tokenizer(without(kSentencePiece, "tokenizer.ggml.scores")) == "'tokenizer.ggml.scores' is missing");
  CHECK(refused_tokenizer(with(kSentencePiece, {{"tokenizer.ggml.scores", f32s({1, 2})}})) ==
        "'tokenizer.ggml.scores' has 2 entries for 10 tokens");
}

TEST_CASE("documents of a GGUF file are told by file and name", "[tokenizer][gguf]") {
  const ModelFiles files(default_gguf());
  CHECK(files.where("config.json") == default_gguf().string() + " (config.json)");
  CHECK(files.find("chat_template.jinja") == std::nullopt);
  CHECK(files.tensors().find("token_embd.weight") != nullptr);
  CHECK(files.tensors().naming() == checkpoint::TensorNaming::kGguf);
}

TEST_CASE("a folder of GGUF files is told from a model", "[tokenizer][gguf]") {
  const TemporaryDirectory folder;
  folder.write("one.gguf", "");
  CHECK(message_thrown([&] { ModelFiles{folder.path()}; }) ==
        folder.path().string() +
            " has no config.json; name the GGUF file in it: " + (folder.path() / "one.gguf").string());
  folder.write("two.gguf", "");
  CHECK(message_thrown([&] { ModelFiles{folder.path()}; }) ==
        folder.path().string() + " has no config.json; name one of the 2 GGUF files in it");
  folder.write("config.json", "{}");
  CHECK(message_thrown([&] { ModelFiles{folder.path()}; }).empty());
  CHECK(message_thrown([&] { ModelFiles{folder.path() / "config.json"}; }) ==
        (folder.path() / "config.json").string() + " is neither a directory nor a GGUF file");
}

}  // namespace
}  // namespace promptcached::testing
