// Prompts: imports, arguments, texts and roles, placed in a schema.
#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

// Positions: <user> 0-2, trip 3-9 (text 3-5, slot 6-7, text 8), nested 9-11 is inside trip: span 3-11; union 11-16;
// root "then" 16; end 17-19; schema length 19.
constexpr const char* kTravel =
    "<schema name=\"travel\"><user><module name=\"trip\">plan a trip<param name=\"days\" len=\"2\"/>."
    "<module name=\"nested\">n1 n2</module></module>"
    "<union><module name=\"miami\">m1 m2</module><module name=\"maui\">u1 u2 u3 u4 u5</module></union>"
    "then<module name=\"end\">e1 e2</module></schema>";

TEST_CASE("a prompt is root text, imports, arguments and texts", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  const AssemblyPlan plan = prompts.plan(
      "<prompt schema=\"travel\">\n  <trip days=\"three\"/>\n  <maui/>\n  Where to swim?</user>\n</prompt>");
  CHECK(prompts.cached_paths(plan) == "#root trip maui");
  CHECK(prompts.new_text(plan) == "6:three|19:Where to swim?<|im_end|>\n<|im_start|>assistant\n");
  CHECK(plan.next_position == 28);
  CHECK(plan.cached_tokens() == 4 + 4 + 5);
  CHECK(plan.prompt_tokens() == 13 + 10);
  CHECK_FALSE(plan.recomputes_last_token);
  CHECK(plan.warnings.empty());
  CHECK(prompts.full_text(plan) ==
        "<|im_start|>user\nplan a tripthree.u1 u2 u3 u4 u5thenWhere to swim?<|im_end|>\n<|im_start|>assistant\n");
  REQUIRE(plan.cached.size() == 3);
  REQUIRE(plan.cached[1].ranges.size() == 2);
  const CachedRange& before = plan.cached[1].ranges[0];
  const CachedRange& after = plan.cached[1].ranges[1];
  CHECK((before.offset == 0 && before.count == 3 && before.start == 3));
  CHECK((after.offset == 3 && after.count == 1 && after.start == 8));
  REQUIRE(plan.cached[0].ranges.size() == 2);
  CHECK((plan.cached[0].ranges[1].offset == 3 && plan.cached[0].ranges[1].start == 16));
}

TEST_CASE("an exact plan is the same text, without modules and without holes", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"travel\"><trip/><maui/>Where to swim?</user></prompt>");
  const AssemblyPlan exact = exact_plan(plan);
  CHECK(exact.cached.empty());
  CHECK(prompt_token_ids(exact) == prompt_token_ids(plan));
  CHECK(exact.prompt_tokens() == plan.prompt_tokens());
  CHECK(exact.next_position == exact.prompt_tokens());
  CHECK(exact.next_position < plan.next_position);
  for (std::int32_t i = 0; i < exact.next_position; ++i) {
    CHECK(exact.new_tokens[static_cast<std::size_t>(i)].position == i);
  }
}

TEST_CASE("the order of imports is free, and nested modules are imported inside their parents", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  const auto ids = [&](const std::string& imports) {
    return prompt_token_ids(prompts.plan("<prompt schema=\"travel\">" + imports + "Go</prompt>"));
  };
  CHECK(ids("<trip><nested/></trip><miami/><end/>") == ids("<end/><miami/>\n<trip>\n  <nested/>\n</trip>"));
  CHECK(ids("<trip/><miami/>") != ids("<trip><nested/></trip><miami/>"));
  CHECK(prompts.cached_paths(prompts.plan("<prompt schema=\"travel\"><end/><trip><nested/></trip>x</prompt>")) ==
        "#root trip trip/nested end");
}

TEST_CASE("arguments take the first positions of their slot; the rest is a hole", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  const auto new_text = [&](const std::string& import) {
    return prompts.new_text(prompts.plan("<prompt schema=\"travel\">" + import + "Go</prompt>"));
  };
  CHECK(new_text("<trip days=\"two weeks\"/>") == "6:two weeks|19:Go");
  CHECK(new_text("<trip days=\"two\"/>") == "6:two|19:Go");
  CHECK(new_text("<trip days=\"\"/>") == "19:Go");
  CHECK(new_text("<trip/>") == "19:Go");
  CHECK(new_text("<trip days=' \"'/>") == "6: \"|19:Go");
  const Error error = prompts.error("<prompt schema=\"travel\">\n <trip days=\"two long weeks\"/></prompt>");
  CHECK(error.code == ErrorCode::kArgumentTooLong);
  CHECK(place_of(error) == "2:2");
  CHECK(contains(error.message, "'days' of <trip> is 3 tokens long; the slot holds 2"));
}

TEST_CASE("what prompts refuse, and where", "[pml][resolver]") {
  struct Case {
    const char* content;
    ErrorCode code;
    const char* place;
    const char* message;
  };
  const Case cases[] = {
      {"<miani/>", ErrorCode::kUnknownModule, "2:1", "did you mean 'miami'"},
      {"<nested/>", ErrorCode::kUnknownModule, "2:1", "'nested' is nested in 'trip': write <trip><nested/></trip>"},
      {"<trip>\n <miami/></trip>", ErrorCode::kUnknownModule, "3:2", "'miami' is not nested: write <miami/> directly"},
      {"<miami><x/></miami>", ErrorCode::kUnknownModule, "2:8", "no nested modules"},
      {"<union><miami/></union>", ErrorCode::kUnknownModule, "2:1", "not <union>"},
      {"<module name=\"miami\"/>", ErrorCode::kUnknownModule, "2:1", "not <module>"},
      {"<zzzzzz/>", ErrorCode::kUnknownModule, "2:1", "has no module 'zzzzzz'"},
      {"<trip dais=\"x\"/>", ErrorCode::kUnknownParameter, "2:1", "did you mean 'days'"},
      {"<miami days=\"x\"/>", ErrorCode::kUnknownParameter, "2:1", "(it has none)"},
      {"<trip xml:space=\"preserve\"/>", ErrorCode::kUnknownParameter, "2:1", "'xml:space'"},
      {"<trip/>\n  <trip/>", ErrorCode::kDuplicateImport, "3:3", "line 2 imports it already"},
      {"<trip><nested/><nested/></trip>", ErrorCode::kDuplicateImport, "2:16", "'trip/nested'"},
      {"<miami/>\n<maui/>", ErrorCode::kUnionConflict, "3:1", "'maui' and 'miami' (line 2)"},
      {"<trip days=\"1\" days=\"2\"/>", ErrorCode::kDuplicateName, "2:16", "'days' twice"},
      {"<trip>text</trip>", ErrorCode::kInvalidPml, "2:7", "text inside the import <trip>"},
      {"<trip>\n  <nested>\n text</nested></trip>", ErrorCode::kInvalidPml, "4:2", "inside the import <nested>"},
      {"<trip><![CDATA[x]]></trip>", ErrorCode::kInvalidPml, "2:16", "text inside"},
      {"<trip><user></trip>", ErrorCode::kInvalidPml, "2:7", "role tag <user> inside the import"},
      {"<trip>", ErrorCode::kInvalidPml, "2:10", "must come first"},
      {"a < b", ErrorCode::kInvalidPml, "2:3", "&lt;"},
  };
  const Prompts prompts(kTravel);
  for (const Case& c : cases) {
    const Error error = prompts.error("<prompt schema=\"travel\">\n" + std::string(c.content) + " </prompt>");
    INFO(c.content);
    INFO(error.message);
    CHECK(error.code == c.code);
    if (std::string(c.content) != "<trip>") {
      CHECK(place_of(error) == c.place);
    }
    CHECK(contains(error.message, c.message));
  }
}

TEST_CASE("the prompt element", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  CHECK(contains(prompts.error("<schema name=\"x\"/>").message, "this is a schema"));
  CHECK(contains(prompts.error("<prompt/>").message, "'schema'"));
  CHECK(contains(prompts.error("<prompt schema=\"travel\" shema=\"x\"/>").message, "did you mean 'schema'"));
  const auto parsed = parse_prompt("\n <prompt schema=\"other\">x</prompt>");
  REQUIRE(parsed.ok());
  CHECK(schema_name(**parsed) == "other");
  CHECK(schema_location(**parsed) == SourceLocation{2, 2});
  const Error other = prompts.error("\n <prompt schema=\"other\">x</prompt>");
  CHECK(other.code == ErrorCode::kUnknownSchema);
  CHECK(place_of(other) == "2:2");
  Limits limits;
  limits.max_bytes = 5;
  CHECK(parse_prompt("<prompt schema=\"x\"/>", limits).error().code == ErrorCode::kBodyTooLarge);
  CHECK(parse_prompt("<prompt schema=\"x\"/>", limits).error().param == "prompt");
}

TEST_CASE("text between imports stands after the import before it, and must fit", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  const auto new_text = [&](const std::string& content) {
    return prompts.new_text(prompts.plan("<prompt schema=\"travel\">" + content + "</prompt>"));
  };
  // miami's own end is 13; its union ends at 16, where root text stands.
  CHECK(new_text("<miami/>a b c<end/>q") == "13:a b c|19:q");
  CHECK(new_text("<end/><miami/>a b c<trip/>q") == "13:a b c|19:q");  // as written, not as laid out
  const Error root = prompts.error("<prompt schema=\"travel\"><miami/>\n a b c d <end/>q</prompt>");
  CHECK(root.code == ErrorCode::kTextDoesNotFit);
  CHECK(place_of(root) == "2:2");
  CHECK(contains(root.message, "5 tokens"));  // the last space is a token of its own
  CHECK((contains(root.message, "only 3 positions are free") && contains(root.message, "before root text")));
  CHECK(contains(root.message, "move it to the end"));
  // The span counts, not what is imported of it: trip ends at 11, behind its slot and its nested module.
  CHECK(new_text("<trip/>a b<end/>") == "11:a b");
  CHECK(contains(prompts.error("<prompt schema=\"travel\"><trip/>a<maui/></prompt>").message,
                 "only 0 positions are free at its place (from position 11, before the module 'maui')"));
}

TEST_CASE("a span counts as occupied even where nothing of it is imported", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"a\">x</module><module name=\"gap\">1 2</module>"
      "<module name=\"b\"><param name=\"p\" len=\"2\"/>y</module></schema>");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><a/>t u<b/>q</prompt>")) == "1:t u|6:q");
  CHECK(prompts.error("<prompt schema=\"s\"><a/>t u v<b/>q</prompt>").code == ErrorCode::kTextDoesNotFit);
}

TEST_CASE("text before any import stands after the last root text before the first import", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\">r1 r2<module name=\"a\">a1 a2</module>r3<module name=\"b\">b1 b2 b3</module>"
      "<module name=\"c\">c1</module>r4</schema>");
  const auto new_text = [&](const std::string& content) {
    return prompts.new_text(prompts.plan("<prompt schema=\"s\">" + content + "</prompt>"));
  };
  CHECK(new_text("x y z<c/>") == "5:x y z");
  CHECK(new_text("x y z<c/>q") == "5:x y z|10:q");
  CHECK(prompts.error("<prompt schema=\"s\">x y z w<c/></prompt>").code == ErrorCode::kTextDoesNotFit);
  CHECK(prompts.error("<prompt schema=\"s\">x<b/></prompt>").code == ErrorCode::kTextDoesNotFit);
  // The first imported position, not the first import written: a stands at 2.
  CHECK(prompts.error("<prompt schema=\"s\">x<c/><a/></prompt>").code == ErrorCode::kTextDoesNotFit);
  const Prompts no_root("<schema name=\"s\"><module name=\"a\">a1 a2</module><module name=\"b\">b1</module></schema>");
  CHECK(no_root.new_text(no_root.plan("<prompt schema=\"s\">x<b/>y</prompt>")) == "0:x|3:y");
  const Prompts bos("<schema name=\"s\"><module name=\"a\">a1 a2</module><module name=\"b\">b1</module></schema>",
                    word_model(true));
  CHECK(bos.new_text(bos.plan("<prompt schema=\"s\">x<b/>y</prompt>")) == "1:x|4:y");
}

TEST_CASE("texts never meet each other", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"a\">x</module><module name=\"empty\"/><module name=\"b\">1 2 "
      "3</module></schema>");
  // Both would start at 1.
  const Error error = prompts.error("<prompt schema=\"s\"><a/>t<empty/>\nu<b/></prompt>");
  CHECK(error.code == ErrorCode::kTextDoesNotFit);
  const Error both = prompts.error("<prompt schema=\"s\"><a/>t<empty/>\nu<a/></prompt>");
  CHECK(both.code == ErrorCode::kDuplicateImport);
  const Prompts gap(
      "<schema name=\"s\"><module name=\"a\">x</module><module name=\"empty\"/><module name=\"g\">1 2 3</module>"
      "<module name=\"b\">y</module></schema>");
  CHECK(contains(gap.error("<prompt schema=\"s\"><a/>t<empty/>\nu<b/></prompt>").message, "before another text"));
  // Past the schema's length only if no text stands there.
  CHECK(gap.new_text(gap.plan("<prompt schema=\"s\"><b/>long text here<a/></prompt>")) == "5:long text here");
  CHECK(contains(gap.error("<prompt schema=\"s\"><b/>long text here<a/>q</prompt>").message, "the text at the end"));
}

TEST_CASE("text at the end starts at the schema's length, whatever is imported", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"travel\">Hello</prompt>")) == "19:Hello");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"travel\"><trip/>Hello</prompt>")) == "19:Hello");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"travel\"><trip/> Hello </prompt>")) == "19: Hello ");
}

TEST_CASE("new tokens are in position order, whatever order they were written in", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"a\"><param name=\"x\" len=\"1\"/><param name=\"y\" len=\"1\"/></module>"
      "<module name=\"b\"><param name=\"z\" len=\"2\"/></module></schema>");
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"s\"><b z=\"one\"/><a y=\"two\" x=\"three\"/>q</prompt>");
  CHECK(prompts.new_text(plan) == "0:threetwoone|4:q");
  CHECK(plan.cached.empty());
}

TEST_CASE("arguments and free text never emit control tokens", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\" special-tokens=\"allow\"><module name=\"a\">x<param name=\"p\" "
      "len=\"9\"/></module></schema>");
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"s\"><a p=\"&lt;|im_end|&gt;\"/><![CDATA[</s>]]></prompt>");
  for (const NewToken& token : plan.new_tokens) {
    CHECK(token.token >= 5);
  }
  CHECK(prompts.full_text(plan) == "x<|im_end|></s>");
}

TEST_CASE("a prompt without new text computes its last token again", "[pml][resolver]") {
  const Prompts prompts(kTravel);
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"travel\"><end/><trip/></prompt>");
  CHECK(plan.recomputes_last_token);
  CHECK(prompts.new_text(plan) == "18: e2");
  CHECK(plan.next_position == 19);
  CHECK(plan.cached_tokens() == 4 + 4 + 1);
  CHECK(plan.cached.back().ranges.back().count == 1);
  // The last by position, here in the middle of a part, and the only token of its range.
  const AssemblyPlan root = prompts.plan("<prompt schema=\"travel\"><trip/></prompt>");
  CHECK(prompts.new_text(root) == "16:then");
  CHECK(prompts.cached_paths(root) == "#root trip");
  CHECK(root.cached[0].ranges.size() == 1);
  CHECK(prompts.full_text(root) == "<|im_start|>user\nplan a trip.then");
  // The only token there is.
  const Prompts one("<schema name=\"s\"><module name=\"m\">x</module></schema>");
  const AssemblyPlan single = one.plan("<prompt schema=\"s\"><m/></prompt>");
  CHECK((single.cached.empty() && single.new_tokens.size() == 1 && single.next_position == 1));
}

TEST_CASE("an empty prompt is refused", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"m\"><param name=\"p\" len=\"2\"/><module "
      "name=\"n\">x</module></module></schema>");
  for (const char* content : {"", "\n", "<m/>", "<m p=\"\"/>", "<m> </m>\n"}) {
    const Error error = prompts.error("\n<prompt schema=\"s\">" + std::string(content) + "</prompt>");
    CHECK(error.code == ErrorCode::kEmptyPrompt);
    CHECK(place_of(error) == "2:1");
  }
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><m p=\"a\"/></prompt>")) == "0:a");
  const Prompts bos("<schema name=\"s\"/>", word_model(true));
  CHECK(bos.new_text(bos.plan("<prompt schema=\"s\"/>")) == "0:<s>");
}

TEST_CASE("everything ends below the model's maximum, max_tokens included", "[pml][resolver]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"m\">1 2 3</module></schema>", word_model(false, 10));
  ResolveOptions options;
  options.max_tokens = 5;
  CHECK(prompts.plan("<prompt schema=\"s\"><m/>a b</prompt>", options).next_position == 5);
  const Error text = prompts.error("<prompt schema=\"s\"><m/>a b c</prompt>", options);
  CHECK(text.code == ErrorCode::kContextLengthExceeded);
  CHECK((contains(text.message, "position 6") && contains(text.message, "max_tokens is 5") &&
         contains(text.message, "together 11") && contains(text.message, "has 10")));
  options.max_tokens = 8;
  CHECK(prompts.error("<prompt schema=\"s\"><m/></prompt>", options).code == ErrorCode::kContextLengthExceeded);
  options.max_tokens = 2147483647;
  CHECK(prompts.error("<prompt schema=\"s\"><m/></prompt>", options).code == ErrorCode::kContextLengthExceeded);
}

TEST_CASE("the assistant's opening follows a closed user turn", "[pml][resolver]") {
  struct Case {
    const char* schema;
    const char* prompt;
    const char* new_text;
  };
  const std::string opening = "<|im_start|>assistant\n";
  const Case cases[] = {
      {"<user><module name=\"m\">x</module>", "<m/>q</user>", "4:q<|im_end|>\nA"},
      {"<user><module name=\"m\">x</module>", "<m/>q</user>\n  ", "4:q<|im_end|>\nA"},
      {"<user><module name=\"m\">x</module>", "<m/>q</user> ", "4:q<|im_end|>\n A"},
      {"<user><module name=\"m\">x</module>", "<m/>q", "4:q"},
      {"<user><module name=\"m\">x</module>", "<m/>q</user>more", "4:q<|im_end|>\nmore"},
      {"<user><module name=\"m\">x</module>", "<m/>q</user><assistant>", "4:q<|im_end|>\nA"},
      {"<user><module name=\"m\">x</module>", "<m/></user>", "4:<|im_end|>\nA"},
      {"<system>a</system><module name=\"m\">x</module>", "<m/><user>q</user>", "7:<|im_start|>user\nq<|im_end|>\nA"},
      {"<user><module name=\"m\">x</module></user>", "<m/>", "6:A"},
      {"<user><module name=\"m\">x</module></user>\n", "<m/>", "6:A"},
      {"<user><module name=\"m\">x</module></user>", "", "6:A"},
      {"<user><module name=\"m\">x</module></user>", "<m/> ", "6: A"},
      {"<user><module name=\"m\">x</module></user>", "<m/>more", "6:more"},
      // A turn that a module closes counts as well, if nothing imported stands behind it.
      {"<module name=\"m\"><user>x</user></module><module name=\"n\">y</module>", "<m/>", "7:A"},
      {"<module name=\"m\"><user>x</user></module><module name=\"n\">y</module>", "<n/>", "6:y"},
      {"<module name=\"m\"><user>x</user></module><module name=\"n\">y</module>", "<n/><m/>", "6:y"},
      {"<module name=\"m\"><user>x</user></module>tail", "<m/>", "6:tail"},
      // Text in the middle counts by its position.
      {"<module name=\"m\">x</module><module name=\"g\">1 2</module><module name=\"n\">y</module><user>q</user>",
       "<m/>t<n/>", "1:t|10:A"},
      {"<module name=\"m\">x</module><module name=\"g\">1 2 3 4 5 6</module><module name=\"n\">y</module>",
       "<m/><user>q</user><n/>", "1:<|im_start|>user\nq<|im_end|>\n"},
  };
  for (const Case& c : cases) {
    INFO(c.schema);
    INFO(c.prompt);
    const Prompts prompts("<schema name=\"s\">" + std::string(c.schema) + "</schema>");
    std::string expected = c.new_text;
    if (expected.back() == 'A') {
      expected.replace(expected.size() - 1, 1, opening);
    }
    CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\">" + std::string(c.prompt) + "</prompt>")) == expected);
    ResolveOptions options;
    options.add_generation_prompt = false;
    auto plain = resolve_source(prompts.schema, "<prompt schema=\"s\">" + std::string(c.prompt) + "</prompt>",
                                prompts.model, options);
    // Only an <assistant> that was written remains.
    if (plain.ok() && !contains(c.prompt, "<assistant>")) {
      CHECK_FALSE(contains(prompts.full_text(*plain), opening));
    }
  }
}

TEST_CASE("the assistant's opening stands behind a text that reaches past the schema", "[pml][resolver]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"a\">x</module><module name=\"b\">y</module></schema>");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><b/><user>q</user><a/></prompt>")) ==
        "2:<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("role tags that do not fit are warned about, never refused", "[pml][resolver]") {
  const Prompts prompts("<schema name=\"s\"><user><module name=\"m\">x</module></schema>");
  CHECK(prompts.plan("<prompt schema=\"s\"><m/>q</user></prompt>").warnings.empty());
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"s\"><m/>q</user>\n</user></prompt>");
  REQUIRE(plan.warnings.size() == 1);
  CHECK(plan.warnings[0].location == SourceLocation{2, 1});
  CHECK(contains(plan.warnings[0].message, "not open"));
  CHECK(prompts.plan("<prompt schema=\"s\"><m/><system>q</prompt>").warnings.size() == 1);
}

TEST_CASE("a scaffold's encodings are used when all its modules are imported", "[pml][resolver]") {
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"a\">a</module><module name=\"b\">b<module name=\"n\">n</module></module>"
      "<module name=\"c\">c</module><module name=\"d\">d</module><scaffold modules=\"c d\"/><scaffold modules=\"a b\"/>"
      "<scaffold modules=\"b c a\"/><scaffold modules=\"b/n d\"/></schema>");
  const auto paths = [&](const std::string& imports) {
    return prompts.cached_paths(prompts.plan("<prompt schema=\"s\">" + imports + "q</prompt>"));
  };
  CHECK(paths("<a/>") == "a");
  CHECK(paths("<b/><a/>") == "a* b*");
  CHECK(paths("<a/><c/>") == "a c");
  CHECK(paths("<c/><d/>") == "c* d*");
  CHECK(paths("<a/><b/><c/>") == "a* b* c*");
  CHECK(paths("<a/><b/><c/><d/>") == "a* b* c* d");        // the larger set first; then c is taken
  CHECK(paths("<a/><b><n/></b><d/>") == "a* b* b/n* d*");  // two sets side by side
  CHECK(paths("<b><n/></b><c/><d/>") == "b b/n c* d*");    // same size: the one written first takes d
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"s\"><a/><b/></prompt>");
  CHECK(plan.recomputes_last_token);
  CHECK(prompts.new_text(plan) == "1:b");
}

TEST_CASE("parts are in position order even when root text comes late", "[pml][resolver]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"a\">a</module>root</schema>");
  CHECK(prompts.cached_paths(prompts.plan("<prompt schema=\"s\"><a/>q</prompt>")) == "a #root");
}

}  // namespace
}  // namespace promptcached::pml
