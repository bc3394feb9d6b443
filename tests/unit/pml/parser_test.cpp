// The XML of PML: what is refused and where, and that what is accepted means what it says.
#include "core/pml/parser.h"

#include <ctime>
#include <functional>
#include <string>

#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

Error parse_error(std::string_view source, const Limits& limits = {}) {
  auto document = parse_document(source, limits);
  INFO(source);
  REQUIRE_FALSE(document.ok());
  return document.error();
}

std::string text_of_root(std::string_view source) {
  auto document = parse_document(source, {});
  INFO(source);
  INFO((document.ok() ? std::string() : document.error().message));
  REQUIRE(document.ok());
  std::string text;
  for (const Node& node : document->children) {
    text += std::get<Text>(node.content).value;
  }
  return text;
}

TEST_CASE("malformed XML is refused with line and column", "[pml][parser]") {
  struct Case {
    const char* source;
    const char* place;
    const char* message;
  };
  const Case cases[] = {
      {"", "1:1", "empty"},
      {"   \n ", "2:2", "empty"},
      {"<!-- only -->", "1:14", "empty"},
      {"hello<s/>", "1:1", "text before the root"},
      {"<s/>\nhello", "2:1", "text after the end of the root"},
      {"<s/><![CDATA[x]]>", "1:5", "text after the end of the root"},
      {"<s/><t/>", "1:5", "second root"},
      {"<s></s></s>", "1:8", "closes nothing"},
      {"</s>", "1:1", "closes nothing"},
      {"<s>\n <a>\n</s>", "3:1", "<a> was opened at line 2"},
      {"<s>\n  <a>", "2:3", "<a> is never closed"},
      {"<s><a", "1:4", "never closed"},
      {"<s><a b", "1:4", "name=\"value\""},
      {"<s><a b>", "1:4", "name=\"value\""},
      {"<s><a b=c>", "1:4", "name=\"value\""},
      {"<s><a b=\"c>", "1:4", "no closing quote"},
      {"<s><a b=\"c\"d=\"e\"/></s>", "1:4", "separated by spaces"},
      {"<s><a =\"c\"/></s>", "1:4", "name=\"value\""},
      {"<s><a b=\"x<y\"/></s>", "1:11", "bare '<'"},
      {"<s><a b=\"x&y\"/></s>", "1:11", "bare '&'"},
      {"<s><a b=\"1\" c=\"2\" b=\"3\"/></s>", "1:19", "'b' twice"},
      {"<s><a/ ></s>", "1:4", "separated by spaces"},
      {"<s></s", "1:4", "malformed end tag"},
      {"<s></ s>", "1:4", "malformed end tag"},
      {"<s></s x>", "1:4", "malformed end tag"},
      {"<s>if a < b</s>", "1:9", "&lt;"},
      {"<s>x && y</s>", "1:6", "&amp;"},
      {"<s>x & y; z</s>", "1:6", "bare '&'"},
      {"<s>x &; y</s>", "1:6", "bare '&'"},
      {"<s>&nope;</s>", "1:4", "&nope; is not declared"},
      {"<s>&#0;</s>", "1:4", "does not allow"},
      {"<s>&#xD800;</s>", "1:4", "does not allow"},
      {"<s>&#x110000;</s>", "1:4", "does not allow"},
      {"<s>&#99999999999999999999;</s>", "1:4", "does not allow"},
      {"<s>&#;</s>", "1:4", "malformed character reference"},
      {"<s>&#x;</s>", "1:4", "malformed character reference"},
      {"<s>&#X41;</s>", "1:4", "malformed character reference"},
      {"<s>&#6a;</s>", "1:4", "malformed character reference"},
      {"<s>a]]>b</s>", "1:5", "]]&gt;"},
      {"<s><!-- a -- b --></s>", "1:11", "'--'"},
      {"<s><!-- a", "1:4", "comment is never closed"},
      {"<s><!--></s>", "1:4", "comment is never closed"},
      {"<s><![CDATA[ a", "1:4", "CDATA section is never closed"},
      {"<s><![cdata[ a ]]></s>", "1:4", "starts no tag"},
      {"<!DOCTYPE s><s/>", "1:1", "DOCTYPE"},
      {"<s><!DOCTYPE s></s>", "1:4", "DOCTYPE"},
      {"<!ENTITY a 'b'><s/>", "1:1", "starts no tag"},
      {"<s><?xml version=\"1.0\"?></s>", "1:4", "very start"},
      {" <?xml version=\"1.0\"?><s/>", "1:2", "very start"},
      {"<?xml version=\"1.0\" encoding=\"latin1\"?><s/>", "1:1", "latin1"},
      {"<s><? a?></s>", "1:4", "processing instruction"},
      {"<s><?a b</s>", "1:4", "processing instruction"},
      {"<s><1/></s>", "1:4", "starts no tag"},
      {"<user>", "1:1", "outside the root"},
      {"<s/></user>", "1:5", "outside the root"},
      {"<s><user/></s>", "1:4", "not a role tag"},
      {"<s><user id=\"1\"></s>", "1:4", "no attributes"},
  };
  for (const Case& c : cases) {
    const Error error = parse_error(c.source);
    INFO(c.source);
    INFO(error.message);
    CHECK(place_of(error) == c.place);
    CHECK(contains(error.message, c.message));
  }
}

TEST_CASE("an attribute given twice has its own code", "[pml][parser]") {
  CHECK(parse_error("<s a=\"1\" a=\"1\"/>").code == ErrorCode::kDuplicateName);
  CHECK(parse_error("<s><a></s>").code == ErrorCode::kInvalidPml);
}

TEST_CASE("columns count characters, lines end at LF, CRLF and CR", "[pml][parser]") {
  CHECK(place_of(parse_error("<s>\xC3\xA9\xF0\x9F\x99\x82 & </s>")) == "1:7");
  CHECK(place_of(parse_error("<s>\r\n\r\n & </s>")) == "3:2");
  CHECK(place_of(parse_error("<s>\r\r & </s>")) == "3:2");
  CHECK(place_of(parse_error("\xEF\xBB\xBF<s> & </s>")) == "1:5");  // a byte order mark is no character of the text
  CHECK(place_of(parse_error("<s>" + std::string(5000, 'x') + " & </s>")) == "1:5005");
  CHECK(place_of(parse_error("<s>" + std::string(300, '\n') + " & </s>")) == "301:2");
}

TEST_CASE("characters that XML or UTF-8 does not allow are refused", "[pml][parser]") {
  using namespace std::string_literals;
  struct Case {
    std::string source;
    const char* place;
    const char* message;
  };
  const Case cases[] = {
      {"<s>a\0b</s>"s, "1:5", "U+0000"},        {"<s>\x1b[0m</s>", "1:4", "U+001B"},
      {"<s>\xff</s>", "1:4", "UTF-8"},          {"<s>\xc0\xaf</s>", "1:4", "UTF-8"},
      {"<s>\xed\xa0\x80</s>", "1:4", "UTF-8"},  {"<s>ok\xe2\x82", "1:6", "UTF-8"},
      {"<s>\xef\xbf\xbf</s>", "1:4", "U+FFFF"}, {"<s><!-- \x01 --></s>", "1:9", "U+0001"},
      {"<s a=\"\x02\"/>", "1:7", "U+0002"},     {"\xfe\xff\0<"s, "1:1", "UTF-8"},
  };
  for (const Case& c : cases) {
    const Error error = parse_error(c.source);
    INFO(error.message);
    CHECK(place_of(error) == c.place);
    CHECK(contains(error.message, c.message));
  }
}

TEST_CASE("comments and instructions do not split text; CDATA and entities are text", "[pml][parser]") {
  CHECK(text_of_root("<s>a<!-- x -->b<?pi y?>c</s>") == "abc");
  CHECK(text_of_root("<s>a<![CDATA[<b> & ]] >]]>c</s>") == "a<b> & ]] >c");
  CHECK(text_of_root("<s>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#x1F642;</s>") == "<>&\"'AB\xF0\x9F\x99\x82");
  CHECK(text_of_root("<s>&amp;lt;</s>") == "&lt;");
  CHECK(text_of_root("<s>a\r\nb\rc<![CDATA[\r\n]]></s>") == "a\nb\nc\n");
  CHECK(text_of_root("<s>  <!-- x -->  </s>") == "    ");
  CHECK(text_of_root("<s><![CDATA[]]></s>").empty());
  CHECK(text_of_root("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- before -->\n<s>x</s>\n<!-- after -->") == "x");
  CHECK(text_of_root("<s><![CDATA[<user>]]><!-- <user> --></s>") == "<user>");
  CHECK(text_of_root("<s>a > b \" ' ]] ></s>") == "a > b \" ' ]] >");
  CHECK(text_of_root("<s>a<?r ?>b</s>") == "ab");  // looks like the scanner's own rewriting of a role tag
}

TEST_CASE("role tags are marks in the text, balanced or not", "[pml][parser]") {
  auto document = parse_document("<s>a</user>b<user >c<?r ?><m>\n<assistant></m></system\n></s>", {});
  REQUIRE(document.ok());
  REQUIRE(document->children.size() == 7);
  const auto& close = std::get<RoleTag>(document->children[1].content);
  CHECK((close.closing && close.role == Role::kUser));
  CHECK(close.location == SourceLocation{1, 5});
  CHECK_FALSE(std::get<RoleTag>(document->children[3].content).closing);
  CHECK(std::get<Text>(document->children[4].content).value == "c");
  const auto& module = std::get<Element>(document->children[5].content);
  CHECK(module.location == SourceLocation{1, 27});
  CHECK(std::get<RoleTag>(module.children.at(1).content).location == SourceLocation{2, 1});
  CHECK(std::get<RoleTag>(document->children[6].content).role == Role::kSystem);
}

TEST_CASE("attribute values are normalised as XML says", "[pml][parser]") {
  auto document = parse_document("<s a=\"  x  \" b='\"' c=\"1\n2\r\n3\t4&#10;5\" d=\"&lt;&amp;\"/>", {});
  REQUIRE(document.ok());
  CHECK(*find_attribute(*document, "a") == "  x  ");
  CHECK(*find_attribute(*document, "b") == "\"");
  CHECK(*find_attribute(*document, "c") == "1 2 3 4\n5");
  CHECK(*find_attribute(*document, "d") == "<&");
  CHECK(find_attribute(*document, "e") == nullptr);
}

TEST_CASE("limits: depth, bytes, markup", "[pml][parser]") {
  const auto nested = [](int depth) {
    std::string open;
    std::string close;
    for (int i = 0; i < depth; ++i) {
      open += "<a>";
      close += "</a>";
    }
    return open + close;
  };
  CHECK(parse_document(nested(64), {}).ok());
  const Error deep = parse_error(nested(65));
  CHECK(deep.code == ErrorCode::kInvalidPml);
  CHECK(place_of(deep) == "1:193");
  CHECK(contains(deep.message, "64"));
  CHECK_FALSE(parse_document(nested(64).insert(64 * 3, "<b/>"), {}).ok());

  Limits limits;
  limits.max_bytes = 10;
  CHECK(parse_document("<s>xxx</s>", limits).ok());
  const Error large = parse_error("<s>xxxx</s>", limits);
  CHECK(large.code == ErrorCode::kBodyTooLarge);
  CHECK(contains(large.message, "11"));
  CHECK(contains(large.message, "10"));

  limits = {};
  limits.max_nodes = 5;
  CHECK(parse_document("<s a=\"\"><b/><!----><user></s>", limits).ok());
  for (const char* one_more : {"<c/>", "<!---->", "<?x?>", "</user>", "<![CDATA[]]>"}) {
    const Error many = parse_error(std::string("<s a=\"\"><b/><!----><user>") + one_more + "</s>", limits);
    CHECK(many.code == ErrorCode::kBodyTooLarge);
    CHECK(place_of(many) == "1:26");
  }
  CHECK(parse_error("<s a=\"\" b=\"\"><b c=\"\" d=\"\"/></s>", limits).code == ErrorCode::kBodyTooLarge);
}

// Seconds of this process's own work: a busy machine must not fail a test of the algorithm.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string repeated(int count, const std::function<std::string(int)>& part) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += part(i);
  }
  return text;
}

TEST_CASE("hostile documents are read in linear time", "[pml][parser]") {
  const std::string attributes = "<s" + repeated(200000, [](int i) { return " a" + std::to_string(i) + "=\"\""; });
  const struct {
    const char* what;
    std::string source;
    const char* message;  // nullptr: accepted
  } cases[] = {
      {"deep nesting", repeated(200000, [](int) { return "<module name=\"m\">"; }), "nested deeper than 64"},
      {"bare ampersands", "<s>" + std::string(4 << 20, '&') + "</s>", "bare '&'"},
      {"attributes", attributes + "/>", nullptr},
      {"an attribute repeated late", attributes + " a0=\"\"/>", "'a0' twice"},
      {"elements on one line", "<s>" + repeated(200000, [](int) { return "\xC3\xA9<a/>"; }) + "</s>", nullptr},
      {"blank text in pieces", "<s>" + repeated(250000, [](int) { return " <!---->"; }) + "</s>", nullptr},
  };
  for (const auto& c : cases) {
    INFO(c.what);
    const double begin = cpu_seconds();
    const auto document = parse_document(c.source, {});
    CHECK(cpu_seconds() - begin < 6.0);
    REQUIRE(document.ok() == (c.message == nullptr));
    if (!document.ok()) {
      CHECK(contains(document.error().message, c.message));
    }
  }
  const auto line = parse_document(cases[4].source, {});
  CHECK(std::get<Element>(line->children.back().content).location == SourceLocation{1, 4 + 199999 * 5 + 1});
}

// Time that grows with the square would be minutes here; the limit leaves room for sanitizers on a slow machine.
TEST_CASE("a long blank text before very many role tags is read in linear time", "[pml][parser]") {
  const std::string source = "<schema name=\"s\" xml:space=\"preserve\">" + std::string(1 << 20, ' ') +
                             repeated(200000, [](int) { return "<user>"; }) + "</schema>";
  const double begin = cpu_seconds();
  CHECK(compile_error(source).code == ErrorCode::kContextLengthExceeded);
  CHECK(cpu_seconds() - begin < 30.0);
}

}  // namespace
}  // namespace promptcached::pml
