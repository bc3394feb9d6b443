#include "core/tokenizer/chat_template.h"

#include <atomic>
#include <thread>

#include "core/tokenizer/hf_chat_template.h"
#include "tests/catch.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {
namespace {

const std::vector<ChatMessage> kConversation = {{"system", " Be <b>brief</b> & \"kind\"\n"},
                                                {"user", "Hi  "},
                                                {"assistant", "<think>so</think>Yes"},
                                                {"user", "Bye"}};

Result<std::string> rendering(const std::string& source, const std::vector<ChatMessage>& messages = kConversation) {
  const auto chat_template = HfChatTemplate::create(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!chat_template) {
    return chat_template.error();
  }
  return (*chat_template)->render(messages, false);
}

std::string rendered(const std::string& source) {
  const auto text = rendering(source);
  return text ? *text : "refused: " + text.error().message;
}

}  // namespace

TEST_CASE("conversations are rendered as transformers renders them") {
  const Json oracle = read_json(oracle_directory() / "chat_templates.json");
  const auto tokens = oracle["special_tokens"].get<std::map<std::string, std::string>>();
  REQUIRE(oracle["cases"].size() >= 60);
  for (const Json& entry : oracle["cases"]) {
    const auto name = entry["template"].get<std::string>();
    CAPTURE(name, entry["name"]);
    const auto chat_template = HfChatTemplate::create(oracle["templates"][name].get<std::string>(), tokens);
    REQUIRE(chat_template.ok());
    const auto text =
        (*chat_template)->render(messages_of(entry["messages"]), entry["add_generation_prompt"].get<bool>());
    REQUIRE(text.ok() == entry.contains("rendered"));
    if (text) {
      CHECK(*text == entry["rendered"].get<std::string>());
    } else {
      CHECK(text.error().code == ErrorCode::kInvalidField);  // the template's own refusal
    }
  }
}

TEST_CASE("the default model's conversations have the ids of transformers") {
  const auto chat_template = load_chat_template(model_directory());
  const auto tokenizer = default_tokenizer();
  REQUIRE(chat_template != nullptr);
  const Json oracle = read_json(oracle_directory() / "chat_templates.json");
  int checked = 0;
  for (const Json& entry : oracle["cases"]) {
    if (entry.contains("ids")) {
      const auto text =
          chat_template->render(messages_of(entry["messages"]), entry["add_generation_prompt"].get<bool>());
      REQUIRE(text.ok());
      CHECK(tokenizer->encode(*text, /*allow_special=*/true).value() == entry["ids"].get<std::vector<TokenId>>());
      ++checked;
    }
  }
  CHECK(checked >= 12);
}

// The expected texts are those of Jinja2 3.1 with the options and additions of transformers.
TEST_CASE("Jinja as chat templates use it") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      // Blocks leave no line of their own; the source's last newline goes.
      {"  {% set a = 1 %}  \n  {%- set b = 2 %}\n\tx{#- c -#} y\n  {# d #}\n z {%- if true %} q {%+ if true %} r "
       "{% endif %}{% endif %}\n",
       "\txy\n z q  r "},
      {"{{ bos_token }}{{- '\\n' -}}  {{ eos_token }}\n\n", "<s>\n</s>\n"},
      {"{{ none }}|{{ true }}|{{ false }}|{{ nope }}|{{ 1.0 }}|{{ 10/4 }}|{{ 7//2 }}", "None|True|False||1.0|2.5|3"},
      {"{{ ['a', \"it's\", none, true] }}{{ {'k': 1} }}", "['a', \"it's\", None, True]{'k': 1}"},
      {"{{ 'a' 'b' }}|{{ 'a' ~ 1 ~ none }}", "ab|a1None"},
      // tojson is json.dumps: no HTML escapes.
      {"{{ messages[0] | tojson }}", R"({"role": "system", "content": " Be <b>brief</b> & \"kind\"\n"})"},
      {"{{ {'b': [1, {}], 'a': []} | tojson(indent=2) }}", "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}"},
      {"{{ {'b': 1, 'a': \"\\u00e9\\t\"} | tojson(sort_keys=true, separators=(',', ':')) }}",
       "{\"a\":\"\u00e9\\t\",\"b\":1}"},
      // Slices, loops, loop controls, namespaces, macros.
      {"{{ messages[::-1][0].content }}|{{ messages[1:][0]['role'] }}|{{ messages[:-1] | length }}", "Bye|user|3"},
      {"{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}"
       "{% if m.role == 'system' %}{% continue %}{% endif %}{{ loop.index0 }}{{ m.content }}{% endfor %}",
       "1Hi  "},
      {"{% set ns = namespace(x=1) %}{% for m in messages %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}", "5"},
      {"{%- macro f(a, b='z') -%}[{{ a }}-{{ b }}]{%- endmacro -%}{{ f('q') }}{{ f('q', b='w') }}", "[q-z][q-w]"},
      // Python's methods and tests.
      {"{{ messages[2].content.split('</think>')[-1] }}|{{ ' a '.strip() }}|{{ 'abc'.startswith('ab') }}",
       "Yes|a|True"},
      {"{% for k, v in messages[1].items() %}{{ k }}={{ v }};{% endfor %}{{ messages[0].get('no', 'd') }}",
       "role=user;content=Hi  ;d"},
      {"{{ 'tool_calls' in messages[0] }}{{ tools is none }}{{ documents is not none }}{{ messages[0].content is "
       "string }}"
       "{{ 'a' is sequence }}{{ messages is iterable }}{{ nope | length }}",
       "FalseTrueFalseTrueTrueTrue0"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}", "Hi  ,Bye"},
      // transformers' own tag.
      {"A\n{% generation %}\nB{{ 1 }}\n{% endgeneration %}\nC{%- generation -%} x {%- endgeneration -%} y",
       "A\nB1\nCxy"},
  };
  for (const auto& [source, expected] : cases) {
    CAPTURE(source);
    CHECK(rendered(source) == expected);
  }
}

TEST_CASE("strftime_now gives the time in the format asked for") {
  const std::string date = rendered("{{ strftime_now('%d %b %Y') }}");
  CHECK(date.size() == 11);
  CHECK(date.find(" 20") == 6);
  CHECK(rendered("{{ strftime_now('%Q!') }}").find("bad format") != std::string::npos);
}

TEST_CASE("a template's refusal comes back in its own words") {
  for (const char* source : {"{{ raise_exception('No <system> ' ~ 'here: 100%') }}",
                             "{% macro m() %}{{ raise_exception('No <system> here: 100%') }}{% endmacro %}"
                             "{% for x in [1] %}{{ m() }}{% endfor %}"}) {
    const auto text = rendering(source);
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().code == ErrorCode::kInvalidField);
    CHECK(text.error().message == "No <system> here: 100%");
  }
}

TEST_CASE("faults in a template or in messages are errors") {
  CHECK(HfChatTemplate::create("{% if %}", {}).error().code == ErrorCode::kInternal);
  CHECK(HfChatTemplate::create("{% for x in y %}", {}).error().message.find("chat template: ") == 0);
  CHECK(rendering("{{ nope.attribute }}").error().code == ErrorCode::kInternal);
  CHECK(rendering("{{ messages }}", {{"user", "\xFF"}}).error().code == ErrorCode::kInvalidField);
  CHECK(rendering("{{ messages[0].content }}", {{"user", "{{ 1 + 1 }}{% raise %}"}}).value() ==
        "{{ 1 + 1 }}{% raise %}");
}

TEST_CASE("one template renders in many threads") {
  const auto chat_template = load_chat_template(model_directory());
  const std::string expected = chat_template->render(kConversation, true).value();
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        wrong += chat_template->render(kConversation, true).value() == expected ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == 0);
}

TEST_CASE("a model directory's template is found where models keep it") {
  const TemporaryDirectory directory;
  const auto render_it = [&] { return load_chat_template(directory.path())->render({}, false).value(); };
  CHECK(load_chat_template(directory.path()) == nullptr);
  directory.write("tokenizer_config.json", R"({"bos_token": null})");
  CHECK(load_chat_template(directory.path()) == nullptr);
  directory.write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<s>", "special": true}, "chat_template": "in config {{ bos_token }}"})");
  CHECK(render_it() == "in config <s>");
  directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                                                 {"name": "default", "template": "plain{{ eos_token }}"}]})");
  directory.write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  CHECK(render_it() == "plain</s>");
  directory.write("chat_template.jinja", "in a file\n");
  CHECK(render_it() == "in a file");
  SECTION("broken files are named") {
    directory.write("chat_template.jinja", "{% if %}");
    CHECK(message_thrown([&] { load_chat_template(directory.path()); }).find(directory.path().string()) == 0);
    directory.write("tokenizer_config.json", "[]");
    CHECK(message_thrown([&] { load_chat_template(directory.path()); }).find("tokenizer_config.json") !=
          std::string::npos);
  }
}

}  // namespace promptcached::testing
