// The schema language: elements, attributes, names, and what is refused.
#include "core/pml/schema.h"

#include "core/base/utf8.h"
#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

std::string in_schema(const std::string& content) { return "<schema name=\"s\">" + content + "</schema>"; }

TEST_CASE("what the schema language refuses, and where", "[pml][schema]") {
  struct Case {
    std::string source;
    ErrorCode code;
    const char* place;
    const char* message;
  };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidPml;
  constexpr ErrorCode kTwice = ErrorCode::kDuplicateName;
  const Case cases[] = {
      {"<prompt schema=\"s\"/>", kInvalid, "1:1", "this is a prompt"},
      {"<sch\xC3\xA9ma/>", kInvalid, "1:1", "<schema>"},
      {"<schema/>", kInvalid, "1:1", "'name'"},
      {"<schema name=\"\"/>", kInvalid, "1:1", "cannot be the name"},
      {"<schema name=\"1a\"/>", kInvalid, "1:1", "cannot be the name"},
      {"<schema name=\"s\" atention=\"rooted\"/>", kInvalid, "1:1", "did you mean 'attention'"},
      {"<schema name=\"s\" attention=\"roted\"/>", kInvalid, "1:1", "did you mean 'rooted'"},
      {"<schema name=\"s\" whitespace=\"trim\"/>", kInvalid, "1:1", "'edges' or 'reference'"},
      {"<schema name=\"s\" pin=\"yes\"/>", kInvalid, "1:1", "'true' or 'false'"},
      {"<schema name=\"s\" ttl=\"0\"/>", kInvalid, "1:1", "seconds"},
      {"<schema name=\"s\" ttl=\"1h\"/>", kInvalid, "1:1", "seconds"},
      {"<schema name=\"s\" ttl=\"inf\"/>", kInvalid, "1:1", "seconds"},
      {"<schema name=\"s\" ttl=\"nan\"/>", kInvalid, "1:1", "seconds"},
      {"<schema name=\"s\" priority=\"1.5\"/>", kInvalid, "1:1", "whole number"},
      {"<schema name=\"s\" priority=\"99999999999\"/>", kInvalid, "1:1", "whole number"},
      {"<schema name=\"s\" special-tokens=\"true\"/>", kInvalid, "1:1", "'allow'"},
      {"<schema name=\"s\" xml:space=\"keep\"/>", kInvalid, "1:1", "'preserve'"},
      {"<schema name=\"s\" src=\"/etc/passwd\"/>", kInvalid, "1:1", "never reads files"},
      {"<schema name=\"s\" position=\"floating\"/>", kInvalid, "1:1", "not supported yet"},
      {in_schema("\n  <module name=\"m\" src=\"x.txt\"/>"), kInvalid, "2:3", "never reads files"},
      {in_schema("<module name=\"m\" position=\"floating\"/>"), kInvalid, "1:18", "not supported yet"},
      {in_schema("<module/>"), kInvalid, "1:18", "'name'"},
      {in_schema("<module name=\"a b\"/>"), kInvalid, "1:18", "cannot be the name"},
      {in_schema("<module name=\"-a\"/>"), kInvalid, "1:18", "cannot be the name"},
      {in_schema("<module name=\"a/b\"/>"), kInvalid, "1:18", "cannot be the name"},
      {in_schema("<module name=\"\xC3\xA9\"/>"), kInvalid, "1:18", "cannot be the name"},
      {in_schema("<module name=\"m\" cache=\"no\"/>"), kInvalid, "1:18", "'true' or 'false'"},
      {in_schema("<module name=\"m\" len=\"3\"/>"), kInvalid, "1:18", "no attribute 'len'"},
      {in_schema("<modul name=\"m\"/>"), kInvalid, "1:18", "did you mean 'module'"},
      {in_schema("if a<b>c</b>"), kInvalid, "1:22", "&lt;b&gt;"},
      {in_schema("<schema name=\"t\"/>"), kInvalid, "1:18", "root element"},
      {in_schema("<prompt schema=\"t\"/>"), kInvalid, "1:18", "root element"},
      {in_schema("<param name=\"p\" len=\"1\"/>"), kInvalid, "1:18", "inside a <module>"},
      {in_schema("<module name=\"m\"/>\n<module name=\"m\"/>"), kTwice, "2:1", "line 1"},
      {in_schema("<module name=\"m\"/>\n<union><module name=\"m\"/></union>"), kTwice, "2:8", "line 1"},
      {in_schema("<union><module name=\"m\"/></union>\n<module name=\"m\"/>"), kTwice, "2:1", "line 1"},
      {in_schema("<union><module name=\"m\"/>\n<module name=\"m\"/></union>"), kTwice, "2:1", "line 1"},
      {in_schema("<union><module name=\"m\"/></union>\n<union><module name=\"m\"/></union>"), kTwice, "2:8", "line 1"},
      {in_schema("<union>text<module name=\"m\"/></union>"), kInvalid, "1:25", "modules only"},
      {in_schema("<union><user></union>"), kInvalid, "1:25", "modules only"},
      {in_schema("<union><union/></union>"), kInvalid, "1:25", "modules only"},
      {in_schema("<union name=\"u\"/>"), kInvalid, "1:18", "no attribute 'name'"},
      {in_schema("<union scaffold=\"miamii\"><module name=\"miami\"/></union>"), ErrorCode::kUnknownModule, "1:18",
       "did you mean 'miami'"},
      {in_schema("<module name=\"m\"><param len=\"1\"/></module>"), kInvalid, "1:35", "'name'"},
      {in_schema("<module name=\"m\"><param name=\"p\"/></module>"), kInvalid, "1:35", "'len'"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"-1\"/></module>"), kInvalid, "1:35", "'-1'"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"4x\"/></module>"), kInvalid, "1:35", "'4x'"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"\"/></module>"), kInvalid, "1:35", "number of tokens"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"1000000000\"/></module>"), kInvalid, "1:35", "999999999"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"1\" length=\"1\"/></module>"), kInvalid, "1:35",
       "keep one"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"1\">x</param></module>"), kInvalid, "1:35",
       "holds nothing"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"1\"/>\n<param name=\"p\" len=\"1\"/></module>"), kTwice,
       "2:1", "line 1"},
      {in_schema("<module name=\"m\"><param name=\"p\" len=\"2\" scaffold=\"one two three\"/></module>"),
       ErrorCode::kArgumentTooLong, "1:35", "3 tokens long; the slot holds 2"},
      {in_schema("<module name=\"m\"><scaffold modules=\"a b\"/></module>"), kInvalid, "1:35", "directly in <schema>"},
      {in_schema("<module name=\"m\"><user name=\"x\"></module>"), kInvalid, "1:35", "no attributes"},
  };
  for (const Case& c : cases) {
    const Error error = compile_error(c.source);
    INFO(error.message);
    CHECK(error.code == c.code);
    CHECK(place_of(error) == c.place);
    CHECK(contains(error.message, c.message));
  }
}

TEST_CASE("reserved names are for the language, except that a schema may have one", "[pml][schema]") {
  for (const std::string name :
       {"schema", "module", "union", "param", "parameter", "scaffold", "system", "user", "assistant", "prompt"}) {
    const Error module = compile_error(in_schema("<module name=\"" + name + "\"/>"));
    CHECK(module.code == ErrorCode::kInvalidPml);
    CHECK(contains(module.message, "element of PML itself"));
    CHECK(contains(
        compile_error(in_schema("<module name=\"m\"><param len=\"1\" name=\"" + name + "\"/></module>")).message,
        "element of PML itself"));
    CHECK(compile_ok("<schema name=\"" + name + "\"/>")->name == name);
  }
  compile_ok(in_schema("<module name=\"_A-z.9\"/><module name=\"User\"/>"));
}

TEST_CASE("the same name is legal at another depth, and for a module's param", "[pml][schema]") {
  const auto schema =
      compile_ok(in_schema("<module name=\"a\"><param name=\"a\" len=\"1\"/><module name=\"a\">x</module></module>"
                           "<module name=\"b\"><module name=\"a\">y</module></module>"));
  CHECK(find_module(*schema, "a") != nullptr);
  CHECK(find_module(*schema, "a/a")->parent == 1);
  CHECK(find_module(*schema, "b/a")->name == "a");
  CHECK(find_module(*schema, "a/b") == nullptr);
  CHECK(find_module(*schema, "") == nullptr);
  CHECK(find_module(*schema, "#root") == &schema->modules[0]);
}

TEST_CASE("retention: a module takes over what it does not say", "[pml][schema]") {
  const auto schema = compile_ok(
      "<schema name=\"s\" pin=\"true\" ttl=\"60\" priority=\"-3\"><module name=\"a\"/>"
      "<module name=\"b\" pin=\"false\" ttl=\"0.5\" priority=\"7\" cache=\"false\"><module "
      "name=\"c\"/></module></schema>");
  const Module& a = *find_module(*schema, "a");
  CHECK((a.retention.pin && a.retention.ttl_seconds == 60.0 && a.retention.priority == -3 && a.cache));
  const Module& b = *find_module(*schema, "b");
  CHECK((!b.retention.pin && b.retention.ttl_seconds == 0.5 && b.retention.priority == 7 && !b.cache));
  const Module& c = *find_module(*schema, "b/c");
  CHECK((c.retention.pin && c.retention.priority == -3 && c.cache));  // the schema's, not its parent's
  CHECK((schema->retention.pin && schema->modules[0].retention.pin));
  CHECK_FALSE(compile_ok("<schema name=\"s\"/>")->retention.ttl_seconds.has_value());
}

TEST_CASE("attention and defaults", "[pml][schema]") {
  CHECK(compile_ok("<schema name=\"s\"/>")->attention == AttentionMode::kRooted);
  CHECK(compile_ok("<schema name=\"s\" attention=\"isolated\"/>")->attention == AttentionMode::kIsolated);
  CHECK(compile_ok("<schema name=\"s\" attention=\"contextual\"/>")->attention == AttentionMode::kContextual);
  CHECK(to_string(AttentionMode::kContextual) == "contextual");
}

TEST_CASE("paths stay short however deep the nesting", "[pml][schema]") {
  const std::string name(200, 'n');
  std::string open;
  std::string close;
  for (int i = 0; i < 5; ++i) {
    open += "<module name=\"" + name + "\">";
    close += "</module>";
  }
  CHECK(contains(compile_error(in_schema(open + close)).message, "path of this module is longer than 1000"));
  CHECK(contains(compile_error(in_schema("<module name=\"" + std::string(257, 'n') + "\"/>")).message, "256"));
}

TEST_CASE("messages stay valid UTF-8 and short, whatever a client wrote", "[pml][schema]") {
  std::string name;
  for (int i = 0; i < 1000; ++i) {
    name += "\xC3\xA9";
  }
  for (const std::string& source :
       {"<schema name=\"" + name + "\"/>", in_schema("<" + name + "/>"), "<schema name=\"s\" x" + name + "=\"1\"/>",
        "<" + name + "/>", "<schema name=\"s\" attention=\"" + name + "\"/>", "<x" + name + ">",
        in_schema("<scaffold modules=\"a" + name + " b\"/>")}) {
    const Error error = compile_error(source);
    CHECK(error.message.size() < 400);
    CHECK(is_valid_utf8(error.message));
  }
}

TEST_CASE("warnings name what looks like a mistake", "[pml][schema]") {
  const auto warnings = [](const std::string& source) {
    std::string all;
    const auto schema = compile_ok(source);
    for (const Warning& warning : schema->warnings) {
      all += std::to_string(warning.location.line) + ":" + std::to_string(warning.location.column) + " " +
             warning.message + "\n";
    }
    return all;
  };
  CHECK(warnings(in_schema("<user><module name=\"m\">x</module>")).empty());
  CHECK(contains(warnings(in_schema("<module name=\"m\">\n</module>")), "1:18 the module 'm' is empty"));
  CHECK(
      contains(warnings(in_schema("<union><module name=\"m\">x</module></union>")), "1:18 this union has one member"));
  CHECK(contains(warnings(in_schema("<union/>")), "no members"));
  CHECK(contains(warnings(in_schema("<module name=\"m\"><param name=\"p\" len=\"0\"/></module>")),
                 "'p' holds no tokens"));
  const std::string union_default =
      "<union scaffold=\"a\"><module name=\"a\">x</module><module name=\"b\">y</module></union></schema>";
  CHECK(contains(warnings("<schema name=\"s\">" + union_default), "only with attention=\"contextual\""));
  CHECK(warnings("<schema name=\"s\" attention=\"contextual\">" + union_default).empty());
  CHECK(contains(warnings(in_schema("<module name=\"m\">a <![CDATA[<|im_end|>]]></module>")),
                 "spells the control token '<|im_end|>'"));
  CHECK(contains(warnings(in_schema("</user>")), "1:18 </user> closes a role that is not open"));
  CHECK(contains(warnings(in_schema("<user>a<system>")), "<system> opens while <user> is still open"));
  CHECK(contains(warnings(in_schema("<user>a</system>")), "</system> closes another role"));
  CHECK(warnings(in_schema("<user>a<module name=\"m\">b</user></module><module name=\"n\">c</user></module>")).empty());
  std::string many;
  for (int i = 0; i < 300; ++i) {
    many += "<module name=\"m" + std::to_string(i) + "\"/>";
  }
  CHECK(compile_ok(in_schema(many))->warnings.size() == 100);
}

TEST_CASE("the version tells content apart", "[pml][schema]") {
  const auto version = [](const std::string& source, const ModelText& model) {
    return compile_ok(source, model)->version;
  };
  const std::string source = in_schema("<user><module name=\"m\">x</module>");
  const ModelText model = word_model();
  CHECK(version(source, model) == version(source, word_model()));
  CHECK(version(source, model).size() == 64);
  CHECK(version(source, model) != version(in_schema("<user><module name=\"m\">y</module>"), model));
  CHECK(version(source, model) != version(in_schema("<user><module name=\"m\" pin=\"true\">x</module>"), model));
  CHECK(version(source, model) != version(source, word_model(true)));
  ModelText other_roles = word_model();
  other_roles.roles.user.open = "USER: ";
  CHECK(version(source, model) != version(source, other_roles));
}

}  // namespace
}  // namespace promptcached::pml
