// Which passes encode a schema, and what each of them sees. The rule of docs/pml.md is written down a second time here,
// token by token, and compared.
#include <map>
#include <set>

#include "tests/unit/pml/encoding_oracle.h"
#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

// Passes as "entries <- context": paths, '*' for a joint encoding, context as path<limit, '+' with placeholders.
std::string describe(const Schema& schema) {
  const auto name = [&](EntryIndex entry) {
    return invariants::module_of_entry(schema, entry).path +
           (schema.entries[static_cast<std::size_t>(entry)].scaffold >= 0 ? "*" : "");
  };
  std::string text;
  for (const EncodingPass& pass : schema.passes) {
    std::string line;
    for (const EntryIndex entry : pass.entries) {
      line += (line.empty() ? "" : " ") + name(entry);
    }
    line += pass.context.empty() ? "" : " <-";
    for (const ContextRef& ref : pass.context) {
      line += " " + name(ref.entry) + "<" + std::to_string(ref.limit) + (ref.placeholders ? "+" : "");
    }
    text += line + "\n";
  }
  return text;
}

std::string schema_source(const std::string& attention, const std::string& scaffolds = "") {
  return "<schema name=\"s\" attention=\"" + attention +
         "\">root<module name=\"a\">a1<param name=\"p\" len=\"2\"/><module name=\"in\"> in</module> a2</module>"
         "<union scaffold=\"d\"><module name=\"d\">d<module name=\"deep\"> deep</module></module>"
         "<module name=\"e\">e1 e2 e3<union><module name=\"f\"> f</module></union></module></union>"
         " tail<module name=\"z\">z</module>" +
         scaffolds + "</schema>";
}
// Positions: root 0, a 1-6 (a1 1, p 2-3, in 4, a2 5), d 6-8 (d 6, deep 7), e 6-10 (e1..e3 6-8, f 9), tail 10, z 11.

TEST_CASE("isolated: a module sees itself", "[pml][passes]") {
  CHECK(describe(*compile_ok(schema_source("isolated"))) == "#root\na\na/in\nd\nd/deep\ne\ne/f\nz\n");
}

TEST_CASE("rooted: a module sees what is present whenever it is", "[pml][passes]") {
  CHECK(describe(*compile_ok(schema_source("rooted"))) ==
        "#root\n"
        "a <- #root<1\n"
        "a/in <- #root<4 a<4\n"
        "d <- #root<6\n"
        "d/deep <- #root<7 d<7\n"
        "e <- #root<6\n"
        "e/f <- #root<9 e<9\n"
        "z <- #root<11\n");
}

TEST_CASE("contextual: one pass for the default path, one for each other union member", "[pml][passes]") {
  CHECK(describe(*compile_ok(schema_source("contextual"))) ==
        "#root a a/in d d/deep z\n"
        "e <- #root<6+ a<6+ a/in<6+\n"
        "e/f <- #root<6+ a<6+ a/in<6+ e<9+\n");
}

TEST_CASE("what would show nothing is left out of a context", "[pml][passes]") {
  const auto schema = compile_ok(
      "<schema name=\"s\"><module name=\"a\"><module name=\"b\">x<param name=\"p\" len=\"1\"/></module>late"
      "<module name=\"c\"><param name=\"p\" len=\"1\"/><module name=\"d\">y</module></module><module "
      "name=\"e\"/></module></schema>");
  CHECK(describe(*schema) == "#root\na\na/b\na/c <- a<3\na/c/d <- a<4\na/e\n");
}

TEST_CASE("a scaffold adds joint encodings, in document order", "[pml][passes]") {
  const std::string scaffold = "<scaffold modules=\"z  e\n a\"/>";
  CHECK(describe(*compile_ok(schema_source("isolated", scaffold))) ==
        "#root\na\na/in\nd\nd/deep\ne\ne/f\nz\na*\ne* <- a*<10\nz* <- a*<12 e*<12\n");
  CHECK(describe(*compile_ok(schema_source("rooted", scaffold))) ==
        "#root\na <- #root<1\na/in <- #root<4 a<4\nd <- #root<6\nd/deep <- #root<7 d<7\ne <- #root<6\n"
        "e/f <- #root<9 e<9\nz <- #root<11\n"
        "a* <- #root<1\ne* <- #root<6 a*<10\nz* <- #root<11 a*<12 e*<12\n");
  const auto contextual = compile_ok(schema_source("contextual", scaffold));
  CHECK(describe(*contextual) ==
        "#root a a/in d d/deep z\n"
        "e <- #root<6+ a<6+ a/in<6+\n"
        "e/f <- #root<6+ a<6+ a/in<6+ e<9+\n"
        // a sees the nested module that stands before its own last text, as it does in its pass.
        "a* <- #root<6+ a/in<6+\n"
        "e* <- #root<6+ a*<10+ a/in<6+\n"
        // z sees the set's e in place of the union's scaffold member and what is nested in that.
        "z* <- #root<12+ a*<12+ a/in<12+ e*<12+\n");
  CHECK(contextual->scaffolds.at(0).modules == std::vector<ModuleIndex>{1, 5, 7});
  CHECK(contextual->scaffolds.at(0).entries == std::vector<EntryIndex>{8, 9, 10});
  CHECK(contextual->entries.at(9).scaffold == 0);
}

TEST_CASE("a scaffold may hold a module and one nested in it", "[pml][passes]") {
  const auto schema = compile_ok(schema_source("rooted", "<scaffold modules=\"a a/in\"/>"));
  CHECK(contains(describe(*schema), "z <- #root<11\na* <- #root<1\na/in* <- #root<4 a*<5\n"));
}

TEST_CASE("scaffolds are checked", "[pml][passes]") {
  struct Case {
    const char* scaffold;
    ErrorCode code;
    const char* message;
  };
  const Case cases[] = {
      {"<scaffold/>", ErrorCode::kInvalidPml, "'modules'"},
      {"<scaffold modules=\"\"/>", ErrorCode::kInvalidPml, "names 0 module(s)"},
      {"<scaffold modules=\" a \"/>", ErrorCode::kInvalidPml, "names 1 module(s)"},
      {"<scaffold modules=\"a z\">x</scaffold>", ErrorCode::kInvalidPml, "holds nothing"},
      {"<scaffold modules=\"a z\" name=\"x\"/>", ErrorCode::kInvalidPml, "no attribute 'name'"},
      {"<scaffold modules=\"a in\"/>", ErrorCode::kUnknownModule, "did you mean 'a/in'"},
      {"<scaffold modules=\"a d/depe\"/>", ErrorCode::kUnknownModule, "did you mean 'd/deep'"},
      {"<scaffold modules=\"a #root\"/>", ErrorCode::kUnknownModule, "#root"},
      {"<scaffold modules=\"a a\"/>", ErrorCode::kDuplicateName, "'a' twice"},
      {"<scaffold modules=\"d e\"/>", ErrorCode::kUnionConflict, "exclude each other"},
      {"<scaffold modules=\"d/deep e/f\"/>", ErrorCode::kUnionConflict, "exclude each other"},
      {"<scaffold modules=\"a z\"/>\n<scaffold modules=\"z a\"/>", ErrorCode::kDuplicateName, "same modules"},
  };
  for (const Case& c : cases) {
    const Error error = compile_error(schema_source("rooted", c.scaffold));
    INFO(error.message);
    CHECK(error.code == c.code);
    CHECK(contains(error.message, c.message));
    REQUIRE(error.location.has_value());
    CHECK(error.location->line == (contains(c.scaffold, "\n") ? 2 : 1));
  }
}

TEST_CASE("passes show exactly what the mode says, token by token", "[pml][passes]") {
  for (const char* attention : {"isolated", "rooted", "contextual"}) {
    const auto schema = compile_ok(schema_source(attention));
    CHECK(oracle::compare_visibility(*schema) == "");
  }
}

TEST_CASE("a hostile schema cannot make contexts without end", "[pml][passes]") {
  std::string source = "<schema name=\"s\" attention=\"contextual\">";
  for (int i = 0; i < 3000; ++i) {
    source += "<module name=\"m" + std::to_string(i) + "\">x</module>";
  }
  source += "<union>";
  for (int i = 0; i < 3000; ++i) {
    source += "<module name=\"u" + std::to_string(i) + "\">y</module>";
  }
  const Error error = compile_error(source + "</union></schema>", word_model(false, 100000));
  CHECK(error.code == ErrorCode::kInvalidPml);
  CHECK(contains(error.message, "rooted"));
  source.replace(source.find("contextual"), 10, "rooted");
  REQUIRE(compile_schema(source + "</union></schema>", word_model(false, 100000)).ok());
}

}  // namespace
}  // namespace promptcached::pml
