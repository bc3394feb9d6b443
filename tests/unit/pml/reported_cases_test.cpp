// Faults that other systems were reported to have, and what PML does instead: first those of the Prompt Cache reference
// code that docs/pml.md lists, then cases from public bug reports.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>

#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

TEST_CASE("reference: broken XML is not repaired silently", "[pml][reference]") {
  CHECK(compile_error("<schema name=\"s\"><module name=\"m\">if a < b & c</module></schema>").code ==
        ErrorCode::kInvalidPml);
  CHECK(compile_error("<schema name=\"s\"><module name=\"m\">x</schema>").code == ErrorCode::kInvalidPml);
  CHECK(compile_error("<schema name=\"s\"/><module name=\"m\"/>").code == ErrorCode::kInvalidPml);
}

TEST_CASE("reference: comments do not break a schema or a prompt", "[pml][reference]") {
  const Prompts prompts(
      "<!-- c --><schema name=\"s\"><!-- c --><?p i?><union><!-- c --><module name=\"m\">x<!-- c "
      "--></module></union></schema>");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><m><!-- c --></m><!-- c -->q</prompt>")) == "1:q");
}

TEST_CASE("reference: text between imports is placed, not lost or moved", "[pml][reference]") {
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"a\">x</module><module name=\"g\">1 2</module><module "
      "name=\"b\">y</module></schema>");
  CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><a/>mid<b/></prompt>")) == "xmidy");
  CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><a/>mid<b/> </prompt>")) == "xmidy ");
  CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\">lead<b/>end</prompt>")) == "leadyend");
}

TEST_CASE("reference: a module or union member imported twice is refused", "[pml][reference]") {
  const Prompts prompts(
      "<schema name=\"s\"><union><module name=\"a\">x</module><module name=\"b\">y</module></union></schema>");
  CHECK(prompts.error("<prompt schema=\"s\"><a/><a/></prompt>").code == ErrorCode::kDuplicateImport);
  CHECK(prompts.error("<prompt schema=\"s\"><a/><b/></prompt>").code == ErrorCode::kUnionConflict);
  CHECK(compile_error("<schema name=\"s\"><union><module name=\"a\"/><module name=\"a\"/></union></schema>").code ==
        ErrorCode::kDuplicateName);
}

TEST_CASE("reference: arguments are ordered by position", "[pml][reference]") {
  // The reference feeds b.x, a.y, a.x, q.
  const Prompts prompts(
      "<schema name=\"s\"><module name=\"a\"><param name=\"x\" len=\"1\"/><param name=\"y\" len=\"1\"/></module>"
      "<module name=\"b\"><param name=\"x\" len=\"1\"/></module></schema>");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><a y=\"2\" x=\"1\"/><b x=\"3\"/>q</prompt>")) == "0:123q");
}

TEST_CASE("reference: the first generated token stands right behind the last one", "[pml][reference]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"a\">x y</module></schema>");
  CHECK(prompts.plan("<prompt schema=\"s\"><a/>q</prompt>").next_position == 3);
}

TEST_CASE("reference: short texts are never doubled or cut", "[pml][reference]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"a\">one two three</module></schema>");
  ResolveOptions options;
  options.max_tokens = 1;
  CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><a/>q</prompt>", options)) == "one two threeq");
}

TEST_CASE("reference: src reads no file", "[pml][reference]") {
  const Error error = compile_error("<schema name=\"s\"><module name=\"a\" src=\"/etc/passwd\"/></schema>");
  CHECK((error.code == ErrorCode::kInvalidPml && contains(error.message, "'src' is refused")));
}

TEST_CASE("reference: a narrower import after a wider one gets its own states", "[pml][reference]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"a\">x</module><module name=\"b\">y</module></schema>");
  CHECK(prompts.cached_paths(prompts.plan("<prompt schema=\"s\"><a/>q</prompt>")) == "a");
  CHECK(prompts.cached_paths(prompts.plan("<prompt schema=\"s\"><a/><b/>q</prompt>")) == "a b");
  const AssemblyPlan plan = prompts.plan("<prompt schema=\"s\"><b/>q</prompt>");
  CHECK(prompts.cached_paths(plan) == "b");
  CHECK(plan.cached[0].ranges[0].start == 1);
}

TEST_CASE("reference: empty union members are legal", "[pml][reference]") {
  for (const std::string attention : {"isolated", "rooted", "contextual"}) {
    const Prompts prompts("<schema name=\"s\" attention=\"" + attention +
                          "\"><union scaffold=\"a\"><module name=\"a\"/><module name=\"b\"></module>"
                          "<module name=\"c\">x</module></union>t</schema>");
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><a/>q</prompt>")) == "tq");
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><b/>q</prompt>")) == "tq");
    CHECK(prompts.full_text(prompts.plan("<prompt schema=\"s\"><c/>q</prompt>")) == "xtq");
  }
}

TEST_CASE("reference: a union's scaffold member is not imported by itself", "[pml][reference]") {
  const Prompts prompts(
      "<schema name=\"s\" attention=\"contextual\"><union scaffold=\"a\"><module "
      "name=\"a\">x</module></union>t</schema>");
  CHECK(prompts.cached_paths(prompts.plan("<prompt schema=\"s\">q</prompt>")) == "#root");
}

TEST_CASE("S04: without a scaffold, a module's encoding does not depend on the modules before it", "[pml][reported]") {
  const auto context_of_b = [](const std::string& a, const std::string& scaffold) {
    const Prompts prompts("<schema name=\"s\"><module name=\"A\">" + a + "</module><module name=\"B\">b</module>" +
                          scaffold + "</schema>");
    const AssemblyPlan plan = prompts.plan("<prompt schema=\"s\"><A/><B/>q</prompt>");
    const Entry& entry = prompts.schema->entries[static_cast<std::size_t>(plan.cached[1].entry)];
    return prompts.schema->passes[static_cast<std::size_t>(entry.pass)].context.size();
  };
  CHECK(context_of_b("1 2 3 4", "") == 0);
  CHECK(context_of_b("5 6 7 8", "") == 0);
  CHECK(context_of_b("1 2 3 4", "<scaffold modules=\"A B\"/>") == 1);
}

TEST_CASE("S05: BOS once, not per module nor before free text", "[pml][reported]") {
  const auto prompt_tokens = [](int modules) {
    std::string schema = "<schema name=\"s\">";
    std::string prompt = "<prompt schema=\"s\">";
    for (int i = 0; i < modules; ++i) {
      schema += "<module name=\"m" + std::to_string(i) + "\">7</module>";
      prompt += "<m" + std::to_string(i) + "/>";
    }
    const Prompts prompts(schema + "</schema>", word_model(/*adds_bos=*/true));
    const AssemblyPlan plan = prompts.plan(prompt + "q</prompt>");
    const std::vector<TokenId> ids = prompt_token_ids(plan);
    CHECK(std::count(ids.begin(), ids.end(), fakes::WordTokenizer::kBos) == 1);
    CHECK(ids.front() == fakes::WordTokenizer::kBos);
    return plan.prompt_tokens();
  };
  CHECK(prompt_tokens(20) - prompt_tokens(10) == 10);
}

TEST_CASE("S06: a schema past the model's positions is refused, though a prompt would use little of it",
          "[pml][reported]") {
  CHECK(compile_error("<schema name=\"s\"><module name=\"a\">1 2 3</module><module name=\"b\">4 5 6</module></schema>",
                      word_model(false, 5))
            .code == ErrorCode::kContextLengthExceeded);
}

long resident_kib() {
  std::ifstream statm("/proc/self/statm");
  long size = 0;
  long resident = 0;
  statm >> size >> resident;
  return resident * 4;
}

TEST_CASE("S19: hostile XML is refused quickly, with a place and little memory", "[pml][reported]") {
  std::string nested;
  for (int i = 0; i < 200000; ++i) {
    nested += "<module name=\"m\">";
  }
  const std::string sources[] = {
      "<!DOCTYPE s [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]><schema name=\"s\">&b;</schema>",
      "<schema name=\"s\">&nope;</schema>",
      "<!DOCTYPE s [<!ENTITY f SYSTEM \"file:///etc/passwd\">]><schema name=\"s\">&f;</schema>",
      "<schema name=\"s\">" + nested,
      "<schema name=\"s\"><module name=\"m\">if a<b then</module></schema>",
      "<schema name=\"s\"><module name=\"m\">x && y</module></schema>",
      "<schema name=\"s\"><module name=\"m\">trunc",
  };
  for (const std::string& source : sources) {
    const long before = resident_kib();
    const std::clock_t begin = std::clock();
    const auto schema = compile_schema(source, word_model());
    const auto prompt = parse_prompt(source);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    REQUIRE_FALSE(schema.ok());
    REQUIRE_FALSE(prompt.ok());
    CHECK(schema.error().code == ErrorCode::kInvalidPml);
    CHECK(schema.error().location.has_value());
    CHECK(prompt.error().location.has_value());
    CHECK(seconds < 1.0);
    CHECK(resident_kib() - before < 50 * 1024);
  }
}

TEST_CASE("S20: names", "[pml][reported]") {
  CHECK(compile_error("<schema name=\"s\">\n<module name=\"a\" name=\"b\"/></schema>").location ==
        SourceLocation{2, 18});
  CHECK(compile_error("<schema name=\"s\"><module name=\"a\"/>\n<module name=\"a\"/></schema>").location ==
        SourceLocation{2, 1});
  compile_ok(
      "<schema name=\"s\"><module name=\"a\"><module name=\"x\"/></module><module name=\"b\"><module "
      "name=\"x\"/></module></schema>");
  CHECK_FALSE(compile_schema("<schema name=\"s\"><module name=\"user\"/></schema>", word_model()).ok());
  CHECK_FALSE(compile_schema("<schema name=\"s\"><module name=\"union\"/></schema>", word_model()).ok());
  const Prompts same(
      "<schema name=\"s\"><module name=\"a\">x<param name=\"p\" len=\"1\"/><module "
      "name=\"a\">y</module></module></schema>");
  CHECK(same.full_text(same.plan("<prompt schema=\"s\"><a><a/></a>q</prompt>")) == "xyq");
  CHECK(same.error("<prompt schema=\"s\">\n<a p=\"1\" p=\"2\"/></prompt>").location == SourceLocation{2, 10});
  CHECK(same.error("<prompt schema=\"s\">\n<b/></prompt>").location == SourceLocation{2, 1});
  CHECK(same.error("<prompt schema=\"s\">\n <a q=\"1\"/></prompt>").location == SourceLocation{2, 2});
}

TEST_CASE("S21: whitespace inside text reaches the tokenizer", "[pml][reported]") {
  const std::string indented = "def f(x):\n    if x:\n\n        return 1\n";
  const std::string flat = "def f(x):\nif x:\n\nreturn 1\n";
  CHECK(module_text("\n" + indented) == indented);
  CHECK(module_text(flat) == flat);
  CHECK(word_model().tokenizer->encode(module_text(indented))->size() !=
        word_model().tokenizer->encode(module_text(flat))->size());
  CHECK(module_text("<system>a</system> <user>b</user>") ==
        "<|im_start|>system\na<|im_end|>\n <|im_start|>user\nb<|im_end|>\n");
  const Prompts prompts("<schema name=\"s\"><module name=\"m\">v=<param name=\"p\" len=\"9\"/></module></schema>");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><m p=\"  x  \"/></prompt>")) == "2:  x  ");
  CHECK(module_text("\n").empty());
  CHECK(module_text("a\r\nb\r\n") == "a\nb\n");
}

}  // namespace
}  // namespace promptcached::pml
