// Conversations of every supported family, written with role tags, beside what transformers renders
// (tests/tools/oracle_chat_families.py, which also says what a family's fields mean).
#include <algorithm>
#include <map>
#include <set>

#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/hf_chat_template.h"
#include "tests/catch.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {
namespace {

const Json& oracle() {
  static const Json kOracle = read_json(oracle_directory() / "chat_families.json");
  return kOracle;
}

std::shared_ptr<const ChatTemplate> template_of(const Json& family) {
  const auto tokens = family["special_tokens"].get<std::map<std::string, std::string>>();
  return HfChatTemplate::create(family["template"].get<std::string>(), tokens).value();
}

std::string bos_of(const Json& family) { return family["special_tokens"].value("bos_token", ""); }

RoleTexts role_texts_of(const Json& family) { return split_role_texts(*template_of(family), bos_of(family)).value(); }

bool has_system(const Json& conversation) { return conversation[0]["role"] == "system"; }

bool takes_system(const Json& family) {
  return family.value("system_place", "") != "dropped" &&
         std::none_of(family["cases"].begin(), family["cases"].end(),
                      [](const Json& entry) { return entry.contains("error"); });
}

// The messages as their author has to write them in PML to say what the template makes of `conversation`.
std::vector<ChatMessage> messages_for(const Json& family, const Json& conversation) {
  std::vector<ChatMessage> messages = messages_of(conversation);
  if (!has_system(conversation)) {
    if (family.contains("default_system")) {
      messages.insert(messages.begin(), {"system", family["default_system"].get<std::string>()});
    }
    return messages;
  }
  messages.front().content = family.value("system_prefix", "") + messages.front().content;
  if (family.value("system_place", "") == "last user turn") {
    std::rotate(messages.begin(), messages.begin() + 1, messages.end() - 1);
  }
  return messages;
}

// The template's text as PML means it: BOS at position 0 alone.
std::string with_one_bos(const Json& family, std::string text) {
  if (family.value("bos_each_turn", false)) {
    const std::string bos = bos_of(family);
    for (std::size_t at = text.find(bos, 1); at != std::string::npos; at = text.find(bos, at)) {
      text.erase(at, bos.size());
    }
  }
  return text;
}

}  // namespace

TEST_CASE("every family's conversations are rendered as transformers renders them") {
  REQUIRE(oracle()["families"].size() >= 25);
  for (const auto& [name, family] : oracle()["families"].items()) {
    const auto chat_template = template_of(family);
    for (const Json& entry : family["cases"]) {
      CAPTURE(name, entry["conversation"]);
      const auto messages = messages_of(oracle()["conversations"][entry["conversation"].get<std::string>()]);
      const auto text = chat_template->render(messages, entry["add_generation_prompt"].get<bool>());
      if (entry.contains("error")) {
        REQUIRE_FALSE(text.ok());
        CHECK(text.error().message == entry["error"].get<std::string>());
      } else {
        CHECK(text.value() == entry["rendered"].get<std::string>());
      }
    }
  }
}

TEST_CASE("every family's conversations can be written with role tags") {
  int compared = 0;
  for (const auto& [name, family] : oracle()["families"].items()) {
    const RoleTexts texts = role_texts_of(family);
    for (const Json& entry : family["cases"]) {
      const auto conversation_name = entry["conversation"].get<std::string>();
      const Json& conversation = oracle()["conversations"][conversation_name];
      CAPTURE(name, conversation_name);
      // Some templates write a conversation's last answer unlike earlier ones; PML writes them all alike.
      if (conversation_name == "answered" || (has_system(conversation) && !takes_system(family))) {
        continue;
      }
      const bool generates = entry["add_generation_prompt"].get<bool>();
      const std::string end = generates ? "" : family.value("end", "");
      CHECK(written_with_roles(texts, messages_for(family, conversation), generates) + end ==
            with_one_bos(family, entry["rendered"].get<std::string>()));
      ++compared;
    }
  }
  CHECK(compared >= 4 * 22 * 2);
}

TEST_CASE("a family without a system role says why") {
  std::set<std::string> without;
  for (const auto& [name, family] : oracle()["families"].items()) {
    CAPTURE(name);
    const RoleTexts texts = role_texts_of(family);
    CHECK(texts.system_unsupported.has_value() != takes_system(family));
    if (!texts.system_unsupported) {
      continue;
    }
    without.insert(name);
    for (const Json& entry : family["cases"]) {
      if (entry.contains("error")) {
        CHECK(*texts.system_unsupported == entry["error"].get<std::string>());
      }
    }
  }
  CHECK(without == std::set<std::string>{"gemma-2", "mistral-v0.1", "phi-3-first"});
  CHECK(role_texts_of(oracle()["families"]["phi-3-first"]).system_unsupported ==
        "it leaves out, moves or repeats the system message");
}

// A role's text is cut between control tokens, never inside one.
TEST_CASE("every family's role texts hold whole control tokens") {
  for (const auto& [name, family] : oracle()["families"].items()) {
    const RoleTexts texts = role_texts_of(family);
    for (const std::string& text :
         {texts.system.open, texts.system.close, texts.user.open, texts.user.close, texts.assistant.open,
          texts.assistant.close, texts.generation_prompt, texts.user_open_after_system.value_or("")}) {
      CAPTURE(name, text);
      CHECK(std::count(text.begin(), text.end(), '<') == std::count(text.begin(), text.end(), '>'));
      CHECK(std::count(text.begin(), text.end(), '[') == std::count(text.begin(), text.end(), ']'));
    }
  }
}

}  // namespace promptcached::testing
