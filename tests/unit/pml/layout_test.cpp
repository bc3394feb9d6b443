// Positions and tokens: where everything of a schema stands.
#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

std::string span_of(const Schema& schema, std::string_view path) {
  const Module* module = find_module(schema, path);
  REQUIRE(module != nullptr);
  return std::to_string(module->start) + "-" + std::to_string(module->end);
}

TEST_CASE("positions run from 0 in document order; all modules count", "[pml][layout]") {
  const ModelText model = word_model();
  const auto schema = compile_ok(
      "<schema name=\"s\">one two<module name=\"a\">three<module name=\"b\"> four five</module> "
      "six</module>seven</schema>",
      model);
  CHECK(text_of(*schema, model, "#root") == "0:one two|6:seven");
  CHECK(text_of(*schema, model, "a") == "2:three|5: six");
  CHECK(text_of(*schema, model, "a/b") == "3: four five");
  CHECK(span_of(*schema, "a") == "2-6");
  CHECK(span_of(*schema, "a/b") == "3-5");
  CHECK(span_of(*schema, "#root") == "0-7");
  CHECK(schema->positions == 7);
  CHECK(schema->token_count == 7);
  CHECK(find_module(*schema, "a")->children == std::vector<ModuleIndex>{2});
  CHECK(find_module(*schema, "a/b")->parent == 1);
  CHECK(find_module(*schema, "a")->location == SourceLocation{1, 25});
}

TEST_CASE("union members share their start; the union is as long as its longest member", "[pml][layout]") {
  const ModelText model = word_model();
  const auto schema = compile_ok(
      "<schema name=\"s\">x<union><module name=\"a\">1 2 3</module><module name=\"b\">1 2 3 4 5 6 7</module>"
      "<module name=\"c\"/></union>after<union scaffold=\"d\"><module name=\"d\">9</module><module "
      "name=\"e\"/></union></schema>",
      model);
  CHECK(span_of(*schema, "a") == "1-4");
  CHECK(span_of(*schema, "b") == "1-8");
  CHECK(span_of(*schema, "c") == "1-1");
  CHECK(text_of(*schema, model, "#root") == "0:x|8:after");
  CHECK(span_of(*schema, "d") == "9-10");
  CHECK(schema->positions == 10);
  CHECK((find_module(*schema, "a")->union_number == 1 && find_module(*schema, "c")->union_number == 1));
  CHECK(find_module(*schema, "d")->union_number == 2);
  CHECK((find_module(*schema, "d")->is_union_default && !find_module(*schema, "e")->is_union_default));
  CHECK(schema->modules[0].children.size() == 5);
}

TEST_CASE("a param takes len positions inside its module", "[pml][layout]") {
  const ModelText model = word_model();
  for (const std::string slot : {"<param name=\"p\" len=\"3\"/>", "<parameter name=\"p\" length=\"3\"/>",
                                 "<param len=\"3\" scaffold=\"\" name=\"p\"> </param>"}) {
    const auto schema =
        compile_ok("<schema name=\"s\"><module name=\"a\">for " + slot + " days</module>end</schema>", model);
    CHECK(text_of(*schema, model, "a") == "0:for |5: days");
    const Parameter& parameter = find_module(*schema, "a")->parameters.at(0);
    CHECK((parameter.name == "p" && parameter.start == 2 && parameter.length == 3));
    CHECK(parameter.placeholder == std::vector<TokenId>(3, fakes::WordTokenizer::kUnknown));
    CHECK(schema->positions == 7);
    CHECK(schema->token_count == 4);
  }
}

TEST_CASE("a param's scaffold text fills its slot while encoding, padded with the unknown token", "[pml][layout]") {
  const ModelText model = word_model();
  const auto schema = compile_ok(
      "<schema name=\"s\"><module name=\"a\"><param name=\"p\" len=\"4\" scaffold=\"two weeks\"/></module></schema>",
      model);
  const Parameter& parameter = find_module(*schema, "a")->parameters.at(0);
  CHECK(model.tokenizer->decode(parameter.placeholder, false) == "two weeks<unk><unk>");
  CHECK(find_module(*schema, "a")->text.empty());
  CHECK(find_module(*schema, "a")->end == 4);
}

TEST_CASE("BOS stands once, at position 0, as root text", "[pml][layout]") {
  const ModelText model = word_model(/*adds_bos=*/true);
  CHECK(text_of(*compile_ok("<schema name=\"s\">hi</schema>", model), model, "#root") == "0:<s>hi");
  const auto schema =
      compile_ok("<schema name=\"s\"><module name=\"a\">x</module><module name=\"b\">y</module></schema>", model);
  CHECK(text_of(*schema, model, "#root") == "0:<s>");
  CHECK(text_of(*schema, model, "a") == "1:x");
  CHECK(text_of(*schema, model, "b") == "2:y");
  CHECK(compile_ok("<schema name=\"s\"/>", model)->positions == 1);
  CHECK(compile_ok("<schema name=\"s\"/>", word_model())->positions == 0);
}

TEST_CASE("role tags do not split a chunk: control tokens as ids, plain text with its neighbours", "[pml][layout]") {
  ModelText model = word_model();
  model.roles.user = {"<|im_start|>user ", "end<|im_end|>"};
  const auto schema = compile_ok("<schema name=\"s\">a<user>b</user>c</schema>", model);
  CHECK(text_of(*schema, model, "#root") == "0:a<|im_start|>user bend<|im_end|>c");
  // "user " + "b" + "end" is tokenised as one text: "user", " bend".
  const auto ids = schema->modules[0].text[0].tokens;
  REQUIRE(ids.size() == 6);
  CHECK(ids[1] == model.tokenizer->token_to_id("<|im_start|>"));
  CHECK(model.tokenizer->decode(std::vector<TokenId>{ids[3]}, false) == " bend");
  CHECK(ids[4] == model.tokenizer->token_to_id("<|im_end|>"));
}

TEST_CASE("a role tag is no level of the tree", "[pml][layout]") {
  const ModelText model = word_model();
  const auto schema = compile_ok(
      "<schema name=\"s\"><user><module name=\"m\">x</module><module name=\"o\"><module "
      "name=\"n\">y</user></module></module></schema>",
      model);
  CHECK(find_module(*schema, "m")->parent == kRoot);
  CHECK(text_of(*schema, model, "#root") == "0:<|im_start|>user\n");
  CHECK(text_of(*schema, model, "o/n") == "4:y<|im_end|>\n");
  REQUIRE(schema->modules[0].role_tags.size() == 1);
  const PlacedRoleTag& open = schema->modules[0].role_tags[0];
  CHECK((open.start == 0 && open.end == 3 && open.ends_chunk && !open.tag.closing));
}

TEST_CASE("text between elements is tokenised at once, across comments, CDATA and entities", "[pml][layout]") {
  const ModelText model = word_model();
  const auto schema = compile_ok("<schema name=\"s\">foo<!-- -->b<![CDATA[a]]>&#114;<?x?>s</schema>", model);
  CHECK(schema->positions == 1);
  CHECK(text_of(*schema, model, "#root") == "0:foobars");
  CHECK(compile_ok("<schema name=\"s\">foo<module name=\"m\"/>bar</schema>", model)->positions == 2);
}

TEST_CASE("text that spells control tokens is text, unless special-tokens allows it for module text", "[pml][layout]") {
  const ModelText model = word_model();
  const std::string spelled = "<![CDATA[<|im_end|>]]>";
  const auto tokens = [&](const std::string& schema_attributes, const std::string& module_attributes) {
    return compile_ok("<schema name=\"s\" " + schema_attributes + "><module name=\"m\" " + module_attributes + ">" +
                          spelled + "<module name=\"n\">" + spelled + "</module></module></schema>",
                      model);
  };
  const TokenId end = *model.tokenizer->token_to_id("<|im_end|>");
  const auto is_control = [&](const Schema& schema, std::string_view path) {
    return find_module(schema, path)->text.at(0).tokens == std::vector<TokenId>{end};
  };
  CHECK_FALSE(is_control(*tokens("", ""), "m"));
  CHECK(text_of(*tokens("", ""), model, "m") == "0:<|im_end|>");
  CHECK(tokens("", "")->positions == 2 * 5);  // "<" "|" "im_end" "|" ">"
  CHECK(is_control(*tokens("special-tokens=\"allow\"", ""), "m"));
  CHECK(is_control(*tokens("special-tokens=\"allow\"", ""), "m/n"));
  CHECK(is_control(*tokens("", "special-tokens=\"allow\""), "m/n"));
  CHECK_FALSE(is_control(*tokens("special-tokens=\"allow\"", "special-tokens=\"deny\""), "m/n"));
}

TEST_CASE("a model without a system role refuses the tag, with the reason", "[pml][layout]") {
  ModelText model = word_model();
  model.roles.system_unsupported = "the model's template has no system role";
  const Error error =
      compile_error("<schema name=\"s\">\n<module name=\"m\">a<system>x</system></module></schema>", model);
  CHECK(error.code == ErrorCode::kInvalidPml);
  CHECK(place_of(error) == "2:19");
  CHECK(contains(error.message, "has no system role"));
  compile_ok("<schema name=\"s\"><user>x</user></schema>", model);
}

TEST_CASE("a schema longer than the model is refused with both numbers, where it passes the maximum", "[pml][layout]") {
  const ModelText model = word_model(false, 5);
  CHECK(compile_ok("<schema name=\"s\">1 2 3<module name=\"m\">4 5</module></schema>", model)->positions == 5);
  const Error text = compile_error("<schema name=\"s\">1 2 3<module name=\"m\">4 5</module>\n6 7</schema>", model);
  CHECK(text.code == ErrorCode::kContextLengthExceeded);
  CHECK((contains(text.message, "7 positions") && contains(text.message, "has 5")));
  CHECK(place_of(text) == "2:1");
  const std::string slot = "<param name=\"p\" len=\"999999999\"/>";
  std::string modules;
  for (int i = 0; i < 50; ++i) {
    modules += "<module name=\"m" + std::to_string(i) + "\">" + slot + "</module>";
  }
  const Error slots = compile_error("<schema name=\"s\">" + modules + "</schema>", model);
  CHECK(slots.code == ErrorCode::kContextLengthExceeded);
  CHECK(contains(slots.message, "49999999950 positions"));
  CHECK(place_of(slots) == "1:36");
}

TEST_CASE("slots in unions cannot reserve memory without end", "[pml][layout]") {
  std::string members;
  for (int i = 0; i < 6; ++i) {
    members += "<module name=\"m" + std::to_string(i) + "\"><param name=\"p\" len=\"1000000\"/></module>";
  }
  const Error error =
      compile_error("<schema name=\"s\"><union>" + members + "</union></schema>", word_model(false, 1000000));
  CHECK(error.code == ErrorCode::kInvalidPml);
  CHECK(contains(error.message, "all slots"));
}

}  // namespace
}  // namespace promptcached::pml
