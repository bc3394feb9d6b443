// The whitespace rules: what layout becomes, in schemas and prompts alike.
#include "core/pml/whitespace.h"

#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

TEST_CASE("edge runs with a line break are layout; everything else is kept", "[pml][whitespace]") {
  struct Case {
    const char* content;
    const char* text;
  };
  // In a module; P is a param of two positions, shown as the '|' between two runs of text.
  const Case cases[] = {
      {"a", "a"},
      {" a ", " a "},
      {"\n  a\n", "a\n"},
      {"\n\n  a  \n\n", "a\n"},
      {"  \n a \t\n ", "a\n"},
      {"a\n  b\n\n c", "a\n  b\n\n c"},
      {"\n", ""},
      {" \n ", ""},
      {" ", " "},
      {"\t", "\t"},
      {"a\r\n  b\r\n", "a\n  b\n"},
      {"\r\n a", "a"},
      {"a P b", "a | b"},
      {"a\n  P\n  b", "a | b"},
      {"a\nP.", "a |."},
      {"P\n a\n", " a\n"},
      {"\n P\n", " | "},
      {" P ", " | "},
      {"a<!-- c -->\n  <!-- c -->b", "a\n  b"},
      {"\n<!-- c -->\n a", "a"},
      {"a\n <module name=\"n\"/>\n b",
       "a\n"
       "b"},
      {"a <module name=\"n\"/> b", "a  b"},
      {"a\n <union><module name=\"n\"/><module name=\"o\"/></union>\n b\n", "a\nb\n"},
      {"<module name=\"n\"/>\n<module name=\"o\"/>", ""},
      {"<module name=\"n\"/> <module name=\"o\"/>", " "},
      {"a&#10;", "a\n"},
      {"a<![CDATA[\n  ]]>", "a\n"},
      {"\xC2\xA0\n a", "\xC2\xA0\n a"},  // a no-break space is text
  };
  for (const Case& c : cases) {
    std::string content = c.content;
    for (std::size_t at = content.find('P'); at != std::string::npos; at = content.find('P')) {
      content.replace(at, 1, "<param name=\"p\" len=\"2\"/>");
    }
    INFO(c.content);
    CHECK(module_text(content) == c.text);
  }
}

TEST_CASE("two params with only layout between them are one space apart", "[pml][whitespace]") {
  CHECK(module_text("a<param name=\"p\" len=\"2\"/>\n  <param name=\"q\" len=\"2\"/>b") == "a| |b");
}

TEST_CASE("role tags are elements for whitespace", "[pml][whitespace]") {
  CHECK(module_text("\n<user>\n  hi\n</user>\n <assistant>") ==
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  CHECK(module_text("a\n  <user>b") == "a\n<|im_start|>user\nb");
  CHECK(module_text("<user>a\n</user>") == "<|im_start|>user\na<|im_end|>\n");
  CHECK(module_text("<user>a </user> <user>b") == "<|im_start|>user\na <|im_end|>\n <|im_start|>user\nb");
  CHECK(module_text("<user>\n<param name=\"p\" len=\"1\"/>\n</user>") == "<|im_start|>user\n | <|im_end|>\n");
}

TEST_CASE("layout at the end of a schema is removed, at the end of a module it is one line break",
          "[pml][whitespace]") {
  const ModelText model = word_model();
  const auto schema = compile_ok("<schema name=\"s\">\n a\n<module name=\"m\">b\n</module>\n c\n</schema>", model);
  CHECK(text_of(*schema, model, "#root") == "0:a\n|4:c");
  CHECK(text_of(*schema, model, "m") == "2:b\n");
}

TEST_CASE("xml:space keeps everything, and can be taken back", "[pml][whitespace]") {
  CHECK(module_text("<!-- -->\n a\r\n", "xml:space=\"preserve\"") == "\n a\n");
  const ModelText model = word_model();
  const auto schema = compile_ok(
      "<schema name=\"s\"><module name=\"a\" xml:space=\"preserve\">\n"
      "<module name=\"b\" xml:space=\"default\">\nx\n</module>\n</module>"
      "<union xml:space=\"preserve\">\n<module name=\"c\">\ny</module>\n<module name=\"d\"/></union></schema>",
      model);
  CHECK(text_of(*schema, model, "a") == "0:\n|3:\n");
  CHECK(text_of(*schema, model, "a/b") == "1:x\n");
  CHECK(text_of(*schema, model, "c") == "4:\ny");
}

TEST_CASE("the reference rule: each edge run is one space, blank text too", "[pml][whitespace]") {
  const std::string reference = "whitespace=\"reference\"";
  CHECK(module_text("\n  a\n  b\n", reference) == " a\n  b ");
  CHECK(module_text("  a", reference) == " a");
  CHECK(module_text("\n\n", reference) == " ");
  CHECK(module_text("a", reference) == "a");
  CHECK(module_text("", reference).empty());
  CHECK(module_text("a\n<param name=\"p\" len=\"1\"/>\n", reference) == "a | ");
  const ModelText model = word_model();
  const auto schema =
      compile_ok("<schema name=\"s\" whitespace=\"reference\">\n <module name=\"m\">x</module>\n</schema>", model);
  CHECK(text_of(*schema, model, "#root") == "0: |2: ");
  Prompts prompts("<schema name=\"s\" whitespace=\"reference\"><module name=\"m\">x</module></schema>");
  CHECK(prompts.new_text(prompts.plan("<prompt schema=\"s\"><m/>\n a\n</prompt>")) == "1: a ");
}

TEST_CASE("prompts follow the same rules", "[pml][whitespace]") {
  const Prompts prompts("<schema name=\"s\"><module name=\"m\">x</module></schema>");
  const auto text = [&](const std::string& content, const std::string& attributes = "") {
    return prompts.new_text(prompts.plan("<prompt schema=\"s\" " + attributes + ">" + content + "</prompt>"));
  };
  CHECK(text("\n  <m/>\n  a\n    b\n") == "1:a\n    b");
  CHECK(text("<m/> a ") == "1: a ");
  CHECK(text("<m/>\r\na\r\nb") == "1:a\nb");
  CHECK(text("<m/>\n a\n", "xml:space=\"preserve\"") == "1:\n a\n");
  const Prompts gap(
      "<schema name=\"s\"><module name=\"m\">x</module><module name=\"g\">1 2 3 4</module><module "
      "name=\"n\">y</module></schema>");
  CHECK(gap.new_text(gap.plan("<prompt schema=\"s\"><m/>\n  a\n  <n/>\n</prompt>")) == "1:a\n");
}

}  // namespace
}  // namespace promptcached::pml
