// A conversation written in PML has the tokens that the model's chat template gives it, with the tokenizers of families
// that treat the start of a text, or the turn behind a system text, in a way of their own.
#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

// Llama 2's texts over a tokenizer file of the oracle.
ModelText llama2_model(const std::string& tokenizer) {
  ModelText model;
  model.tokenizer =
      load_tokenizer(std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests" / "data" / "oracle" / tokenizer);
  model.roles = builtin_role_texts("llama2").value();
  model.max_positions = 1000;
  return model;
}

std::vector<TokenId> tokens_of(const std::string& schema, const std::string& prompt, const ModelText& model) {
  return prompt_token_ids(Prompts(schema, model).plan(prompt));
}

std::vector<TokenId> rendered(const std::string& text, const ModelText& model) {
  return model.tokenizer->encode(text, /*allow_special=*/true).value();
}

}  // namespace

TEST_CASE("the turn behind a system text is opened once", "[pml][conversation]") {
  for (const std::string tokenizer : {"llama2-tokenizer", "metaspace-tokenizer"}) {
    CAPTURE(tokenizer);
    const ModelText model = llama2_model(tokenizer);
    const std::vector<TokenId> expected =
        rendered("<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello there [/INST]", model);
    CHECK(tokens_of("<schema name=\"s\"/>",
                    "<prompt schema=\"s\"><system>Be brief.</system><user>Hello there</user></prompt>",
                    model) == expected);
    CHECK(tokens_of("<schema name=\"s\"><system>Be brief.</system><user>Hello there</user></schema>",
                    "<prompt schema=\"s\"/>", model) == expected);
  }
}

TEST_CASE("a later turn opens as usual", "[pml][conversation]") {
  for (const std::string tokenizer : {"llama2-tokenizer", "metaspace-tokenizer"}) {
    CAPTURE(tokenizer);
    const ModelText model = llama2_model(tokenizer);
    CHECK(tokens_of(
              "<schema name=\"s\"/>",
              "<prompt schema=\"s\"><system>S</system><user>A</user><assistant>B</assistant><user>C</user></prompt>",
              model) == rendered("<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s>[INST] C [/INST]", model));
    CHECK(tokens_of("<schema name=\"s\"/>", "<prompt schema=\"s\"><user>Hello</user></prompt>", model) ==
          rendered("<s>[INST] Hello [/INST]", model));
  }
}

TEST_CASE("text without roles is tokenised as the tokenizer does alone", "[pml][conversation]") {
  for (const std::string tokenizer : {"llama2-tokenizer", "metaspace-tokenizer"}) {
    CAPTURE(tokenizer);
    const ModelText model = llama2_model(tokenizer);
    std::vector<TokenId> expected = {model.tokenizer->token_to_id("<s>").value()};
    const std::vector<TokenId> text = model.tokenizer->encode("Hello there").value();
    expected.insert(expected.end(), text.begin(), text.end());
    CHECK(tokens_of("<schema name=\"s\"/>", "<prompt schema=\"s\">Hello there</prompt>", model) == expected);
  }
}

// The opening depends on the last role tag in front, wherever that stands.
TEST_CASE("a user turn knows a system text of the schema", "[pml][conversation]") {
  ModelText model = word_model();
  model.roles.user_open_after_system = "";
  const std::string open = "<|im_start|>user\n";
  const std::string close = "<|im_end|>\n";
  const std::string system = "<|im_start|>system\nS<|im_end|>\n";
  const std::string answer = "<|im_start|>assistant\n";
  SECTION("in a module: known to the prompt, which imports it or does not") {
    const Prompts prompts(
        "<schema name=\"s\"><module name=\"sys\"><system>S</system></module><module name=\"doc\">D</module></schema>",
        model);
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><sys/><doc/><user>Q</user></prompt>")) ==
          system + "DQ" + close + answer);
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><doc/><user>Q</user></prompt>")) ==
          "D" + open + "Q" + close + answer);
  }
  SECTION("in the root text: known to modules, too") {
    const Prompts prompts(
        "<schema name=\"s\"><system>S</system><union><module name=\"a\"><user>A</user></module>"
        "<module name=\"b\"><user>B</user></module></union></schema>",
        model);
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><a/><user>Q</user></prompt>")) ==
          system + "A" + close + open + "Q" + close + answer);
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><b/></prompt>")) == system + "B" + close + answer);
  }
  SECTION("one module does not count on another") {
    const Prompts prompts(
        "<schema name=\"s\"><module name=\"sys\"><system>S</system></module>"
        "<module name=\"a\"><user>A</user></module></schema>",
        model);
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><a/></prompt>")) == open + "A" + close + answer);
  }
}

TEST_CASE("the chat template's BOS stands in front if the tokenizer puts none there", "[pml][conversation]") {
  ModelText model = word_model();
  model.roles.bos = "<s>";
  CHECK(compile_ok("<schema name=\"s\">x</schema>", model)->modules.front().text.front().tokens.front() ==
        fakes::WordTokenizer::kBos);
  ModelText both = word_model(/*adds_bos=*/true);
  both.roles.bos = "<s>";
  CHECK(compile_ok("<schema name=\"s\">x</schema>", both)->positions == 2);
}

}  // namespace promptcached::pml
