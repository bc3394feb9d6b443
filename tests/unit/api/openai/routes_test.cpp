#include "api/openai/routes.h"

#include <sstream>
#include <thread>

#include "core/tokenizer/hf_chat_template.h"
#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {
namespace {

using engine::DoneEvent;
using engine::FinishReason;
using engine::StartEvent;
using engine::TokenEvent;

constexpr const char* kTemplate =
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% "
    "endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{{ more }}";

class OpenAiFixture : public ApiFixture {
 public:
  explicit OpenAiFixture(ServiceOptions options = {}) : ApiFixture(options) {
    chat_template = HfChatTemplate::create(kTemplate, {}).value();
    service.set_backend(std::make_shared<Backend>(Backend{&engine, &metrics, "test-model", chat_template, 5}));
    say({"Hello", " there"});
  }
  void say(const std::vector<std::string>& texts) {
    engine.script = {StartEvent{{.prompt_tokens = 9, .cached_tokens = 4, .new_tokens = 5, .completion_tokens = 0}, {}}};
    for (const std::string& text : texts) {
      engine.script.emplace_back(TokenEvent{text, 5, -0.5F, {}});
    }
    engine.script.emplace_back(DoneEvent{FinishReason::kStop,
                                         {.prompt_tokens = 9,
                                          .cached_tokens = 4,
                                          .new_tokens = 5,
                                          .completion_tokens = static_cast<std::int32_t>(texts.size())},
                                         {}});
  }
  Answer chat(const std::string& fields) {
    return send("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}");
  }
  Answer messages(const std::string& list) {
    return send("POST", "/v1/chat/completions", "{\"messages\":" + list + "}");
  }
  // The prompt of the last request.
  std::string prompt() const {
    std::vector<TokenId> ids;
    for (const pml::NewToken& token : engine.requests.back().plan.new_tokens) {
      ids.push_back(token.token);
    }
    return engine.text().tokenizer->decode(ids, false);
  }

  std::shared_ptr<const ChatTemplate> chat_template;
};

std::vector<nlohmann::json> chunks(const std::string& stream) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(stream);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("data: {")) {
      found.push_back(nlohmann::json::parse(line.substr(6)));
    }
  }
  return found;
}

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"find","parameters":{"type":"object","b":1,"a":2}}}])";

}  // namespace

TEST_CASE("tools reach the template in the client's order, and calls come back parsed", "[api]") {
  OpenAiFixture fixture;
  fixture.say({"Wait. <tool_", "call>{\"name\": \"find\",", " \"arguments\": {\"q\": \"x\"}}</tool_call>"});
  const Answer whole = fixture.chat(kTools);
  REQUIRE(whole.status == 200);
  CHECK(fixture.prompt().starts_with(
      R"(<tools>[{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "b": 1, "a": 2}}}]</tools>)"));
  const nlohmann::json choice = whole.json()["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["content"] == "Wait. ");
  const nlohmann::json call = choice["message"]["tool_calls"][0];
  CHECK(call["type"] == "function");
  CHECK(call["id"].get<std::string>().starts_with("call_"));
  CHECK(call["function"]["name"] == "find");
  CHECK(nlohmann::json::parse(call["function"]["arguments"].get<std::string>()) == nlohmann::json{{"q", "x"}});

  const auto streamed = chunks(fixture.chat(std::string(kTools) + R"(,"stream":true)").body);
  std::string content;
  nlohmann::json calls;
  for (const nlohmann::json& chunk : streamed) {
    content += chunk["choices"][0]["delta"].value("content", "");
    if (chunk["choices"][0]["delta"].contains("tool_calls")) {
      calls = chunk["choices"][0]["delta"]["tool_calls"];
    }
  }
  CHECK(content == "Wait. ");
  REQUIRE(calls.size() == 1);
  CHECK(calls[0]["index"] == 0);
  CHECK(streamed.back()["choices"][0]["finish_reason"] == "tool_calls");
}

TEST_CASE("without a choice of tools the answer is text", "[api]") {
  OpenAiFixture fixture;
  fixture.say({"<tool_call>{\"name\": \"f\"}</tool_call>"});
  const Answer answer = fixture.chat(std::string(kTools) + R"(,"tool_choice":"none")");
  CHECK(fixture.prompt().find("<tools>") == std::string::npos);
  CHECK(answer.json()["choices"][0]["finish_reason"] == "stop");
  CHECK(answer.json()["choices"][0]["message"]["content"] == "<tool_call>{\"name\": \"f\"}</tool_call>");
}

TEST_CASE("a forced call becomes a grammar, and comes back parsed", "[api]") {
  OpenAiFixture fixture;
  // What the fake tokenizer is to know: the grammar's texts must be writable.
  REQUIRE(fixture.engine.text().tokenizer->encode("<tool_call>\n{\"name\": \"find\", \"arguments\": {}}").ok());
  const std::string call = "{\"name\": \"find\", \"arguments\": {}}";
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"find"}})"}) {
    fixture.say({"<tool_call>\n" + call + "\n</tool_call>"});
    const Answer answer = fixture.chat(std::string(kTools) + R"(,"tool_choice":)" + choice);
    REQUIRE(answer.status == 200);
    CHECK(fixture.engine.requests.back().grammar != nullptr);
    CHECK(answer.json()["choices"][0]["finish_reason"] == "tool_calls");
  }
  fixture.say({"text"});
  CHECK(fixture.chat(kTools).status == 200);
  CHECK(fixture.engine.requests.back().grammar == nullptr);
  const auto refused = [&](const std::string& fields) {
    return fixture.chat(fields).json()["error"]["param"].get<std::string>();
  };
  CHECK(refused(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"other"}})") ==
        "tool_choice");
  CHECK(refused(std::string(kTools) + R"(,"tool_choice":"must")") == "tool_choice");
  CHECK(refused(R"(,"tool_choice":"required")") == "tool_choice");
  CHECK(refused(R"(,"tool_choice":"required","guided_regex":"a")" + std::string(kTools)) == "tool_choice");
}

TEST_CASE("earlier calls and their results go back through the template", "[api]") {
  OpenAiFixture fixture;
  REQUIRE(fixture
              .messages(R"([{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c",)"
                        R"("type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": \"x\"}"}}]},)"
                        R"({"role":"tool","tool_call_id":"c","content":"found"}])")
              .status == 200);
  CHECK(fixture.prompt().find(R"(<tool_call>{"arguments": {"b": 1, "a": "x"}, "name": "f"}</tool_call>)") !=
        std::string::npos);
  CHECK(fixture.prompt().find("<|im_start|>tool\nfound<|im_end|>") != std::string::npos);
}

TEST_CASE("what else a template may ask for", "[api]") {
  OpenAiFixture fixture;
  REQUIRE(fixture.chat(R"(,"chat_template_kwargs":{"more":"MORE"},"add_generation_prompt":false)").status == 200);
  CHECK(fixture.prompt() == "<|im_start|>user\nhi<|im_end|>\nMORE");
  CHECK(fixture.chat(R"(,"chat_template_kwargs":{"messages":[]})").json()["error"]["param"] == "chat_template_kwargs");
}

TEST_CASE("several choices differ by their seeds, and a prompt counts once", "[api]") {
  OpenAiFixture fixture;
  const Answer answer = fixture.chat(R"(,"n":3,"seed":7)");
  REQUIRE(answer.json()["choices"].size() == 3);
  CHECK(answer.json()["choices"][2]["index"] == 2);
  CHECK(answer.json()["usage"] == nlohmann::json{{"prompt_tokens", 9},
                                                 {"completion_tokens", 6},
                                                 {"total_tokens", 15},
                                                 {"prompt_tokens_details", {{"cached_tokens", 4}}}});
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(fixture.engine.requests[i].sampling.seed == 7 + i);
  }
}

TEST_CASE("an answer's length is what the context leaves, unless it is said", "[api]") {
  OpenAiFixture fixture;
  REQUIRE(fixture.chat("").status == 200);
  const engine::GenerateRequest& chat = fixture.engine.requests.back();
  CHECK(chat.max_tokens == 1000 - chat.plan.next_position);
  REQUIRE(fixture.send("POST", "/v1/completions", R"({"prompt":"a b"})").status == 200);
  CHECK(fixture.engine.requests.back().max_tokens == 16);
  REQUIRE(fixture.chat(R"(,"max_tokens":5,"max_completion_tokens":6)").status == 200);
  CHECK(fixture.engine.requests.back().max_tokens == 6);
}

TEST_CASE("a silent stream of OpenAI's form has comments", "[api]") {
  ServiceOptions options;
  options.heartbeat = std::chrono::milliseconds(5);
  OpenAiFixture fixture(options);
  fixture.engine.hold = true;
  std::thread late([&] {
    while (fixture.engine.held() == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    for (const engine::StreamEvent& event : fixture.engine.script) {
      fixture.engine.held()->push(event);
    }
  });
  const Answer answer = fixture.chat(R"(,"stream":true)");
  late.join();
  CHECK(answer.body.starts_with(": waiting\n\n"));
  CHECK(answer.body.ends_with("\n\ndata: [DONE]\n\n"));
}

TEST_CASE("an error ends the stream, and the other choices", "[api]") {
  OpenAiFixture fixture;
  fixture.engine.script.back() = make_error(ErrorCode::kTimeout, "too slow");
  const std::string stream = fixture.chat(R"(,"stream":true,"n":2)").body;
  CHECK(chunks(stream).back()["error"]["code"] == "timeout");
  CHECK(stream.find("[DONE]") == std::string::npos);
  CHECK(fixture.chat("").status == 503);
}

TEST_CASE("a refused choice takes the others with it", "[api]") {
  OpenAiFixture fixture;
  fixture.engine.refuse = make_error(ErrorCode::kQueueFull, "full");
  CHECK(fixture.chat(R"(,"n":2)").status == 429);
}

TEST_CASE("a closed connection cancels all choices", "[api]") {
  OpenAiFixture fixture;
  fixture.engine.hold = true;
  FakeClient client;
  HttpRequest request = ApiFixture::request("POST", "/v1/completions", R"({"prompt":"a","n":1,"stream":false})");
  request.client = &client;
  std::thread gone([&] {
    while (fixture.engine.held() == nullptr || !client.gone) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    client.gone();
    CHECK(fixture.engine.held()->cancelled());
    fixture.engine.held()->push(DoneEvent{FinishReason::kCancelled, {}, {}});
  });
  ApiFixture::send(fixture.router, std::move(request));
  gone.join();
}

TEST_CASE("token ids are whole numbers that the model knows", "[api]") {
  OpenAiFixture fixture;
  const auto text_of = [&](const std::string& ids) {
    return fixture.send("POST", "/detokenize", "{\"tokens\":" + ids + "}");
  };
  CHECK(text_of("[]").json()["prompt"] == "");
  CHECK(text_of("[5.0]").json() == text_of("[5]").json());
  CHECK(fixture.send("POST", "/v1/completions", R"({"prompt":[5.0, 6]})").status == 200);
  for (const char* wrong : {"[5.5]", "[-1]", "[\"5\"]", "[1000]", "[2147483647]", "[1e20]", "5"}) {
    CAPTURE(wrong);
    CHECK(text_of(wrong).status == 400);
    CHECK(text_of(wrong).json()["error"]["param"] == "tokens");
  }
  CHECK(text_of("[5, 1000]").json()["error"]["message"].get<std::string>().find("999") != std::string::npos);
}

TEST_CASE("a model without a chat template says so", "[api]") {
  ApiFixture fixture;
  const Answer answer =
      fixture.send("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  CHECK(answer.status == 400);
  CHECK(answer.json()["error"]["message"].get<std::string>().find("chat template") != std::string::npos);
}

}  // namespace promptcached::api
