#include "api/openai/tool_calls.h"

#include "tests/catch.h"
#include "tests/fakes/word_tokenizer.h"

namespace promptcached::api {
namespace {

struct Parsed {
  std::string content;
  std::vector<ToolCall> calls;
};

// Fed in pieces of `size` bytes; what is given out early and at the end, joined.
Parsed parse(ToolSyntax syntax, std::string_view text, std::size_t size = 1) {
  ToolCallParser parser(syntax);
  Parsed parsed;
  for (std::size_t at = 0; at < text.size(); at += size) {
    parsed.content += parser.push(text.substr(at, size));
  }
  ToolCallParser::End end = parser.finish();
  parsed.content += end.content;
  parsed.calls = std::move(end.calls);
  return parsed;
}

void check_calls(const Parsed& parsed, const std::vector<std::pair<std::string, std::string>>& expected) {
  REQUIRE(parsed.calls.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(parsed.calls[i].name == expected[i].first);
    CHECK(parsed.calls[i].arguments == expected[i].second);
  }
}

}  // namespace

TEST_CASE("each syntax is told from the template that teaches it", "[api]") {
  CHECK(tool_syntax_of("{{- '\\n<tool_call>\\n' }}") == ToolSyntax::kHermes);
  CHECK(tool_syntax_of("[AVAILABLE_TOOLS]…[TOOL_CALLS]") == ToolSyntax::kMistral);
  CHECK(tool_syntax_of("{{ '<|python_tag|>' }}") == ToolSyntax::kLlama);
  CHECK(tool_syntax_of(R"({"name": function name, "parameters": dictionary})") == ToolSyntax::kLlama);
  CHECK(tool_syntax_of("{{ messages }}") == ToolSyntax::kNone);
}

TEST_CASE("Hermes' calls, however the text is cut", "[api]") {
  const std::string two =
      "I look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"b\": 1, \"a\": [\"<x>\"]}}\n</tool_call>\n"
      "<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>";
  for (const std::size_t size : {1U, 3U, 7U, 500U}) {
    const Parsed parsed = parse(ToolSyntax::kHermes, two, size);
    CHECK(parsed.content == "I look.\n");
    check_calls(parsed, {{"find", R"({"b":1,"a":["<x>"]})"}, {"stop", "{}"}});
  }
  check_calls(parse(ToolSyntax::kHermes, R"(<tool_call>{"name": "f", "arguments": {}})"), {{"f", "{}"}});
}

TEST_CASE("Llama's calls are the whole answer", "[api]") {
  check_calls(
      parse(ToolSyntax::kLlama, R"({"name": "f", "parameters": {"q": "a; b"}}; {"name": "g", "parameters": {}})"),
      {{"f", R"({"q":"a; b"})"}, {"g", "{}"}});
  check_calls(parse(ToolSyntax::kLlama, R"(<|python_tag|>{"name": "f", "parameters": {}})"), {{"f", "{}"}});
  const Parsed text = parse(ToolSyntax::kLlama, R"(It is {"name": "f"})");
  CHECK(text.calls.empty());
  CHECK(text.content == R"(It is {"name": "f"})");
}

TEST_CASE("Mistral's calls, of both versions", "[api]") {
  check_calls(parse(ToolSyntax::kMistral,
                    R"([TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}])"),
              {{"f", R"({"x":1})"}, {"g", "{}"}});
  const Parsed later = parse(ToolSyntax::kMistral, R"(So: [TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[ARGS]{})");
  CHECK(later.content == "So: ");
  check_calls(later, {{"f", R"({"x": 1})"}, {"g", "{}"}});
}

TEST_CASE("what is no call after all is content: nothing is lost", "[api]") {
  for (const ToolSyntax syntax : {ToolSyntax::kNone, ToolSyntax::kHermes, ToolSyntax::kLlama, ToolSyntax::kMistral}) {
    for (const char* text : {"", "plain", "<tool_call>no json</tool_call> after", "<tool_call>{\"nam", "a <tool",
                             "{\"a\": 1}", "{", "[TOOL_CALLS] x", "[TOOL_CALLS]f[ARGS]{", "[TOOL",
                             "<|python_tag|>print(1)", " {\"name\": 5}", "<tool_call>", "</tool_call>"}) {
      CAPTURE(static_cast<int>(syntax), text);
      const Parsed parsed = parse(syntax, text);
      CHECK(parsed.calls.empty());
      CHECK(parsed.content == text);
    }
  }
}

TEST_CASE("plain text is not held back", "[api]") {
  ToolCallParser parser(ToolSyntax::kHermes);
  CHECK(parser.push("Hello <") == "Hello ");
  CHECK(parser.push("b>") == "<b>");
}

}  // namespace promptcached::api
