#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/hf_chat_template.h"
#include "tests/catch.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {
namespace {

// Templates in the manner of well-known families.

const std::string kSmolLm =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const std::string kLlama3 =
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
    "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

// A system turn of its own, dates included, whether asked for or not.
const std::string kLlama31 =
    "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] | trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + strftime_now('%d %b %Y') + '\n\n' }}"
    "{{- system_message }}{{- '<|eot_id|>' }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] "
    "+ "
    "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}";

const std::string kLlama2 =
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}"
    "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% "
    "endif %}"
    "{% if loop.index0 == 0 and system != false %}"
    "{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";

const std::string kMistralFirst =
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + eos_token + ' ' }}{% endif %}{% endfor %}";

// The system text goes into the last user turn.
const std::string kMistralLater =
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}"
    "{%- else %}{%- set rest = messages %}{%- endif %}{{- bos_token }}{%- for message in rest %}"
    "{%- if message['role'] == 'user' %}{%- if loop.last and system is defined %}"
    "{{- '[INST] ' + system + '\n\n' + message['content'] + '[/INST]' }}{%- else %}"
    "{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- else %}"
    "{{- ' ' + message['content'] | trim + eos_token }}{%- endif %}{%- endfor %}";

const std::string kGemma =
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif "
    "%}"
    "{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

const std::string kZephyr =
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
    "eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif "
    "%}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";

// The last answer has an empty thought in front, earlier ones have not.
const std::string kThinking =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{{ message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// BOS and EOS are one token, turns are separated by a newline.
const std::string kOlmo =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<|system|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'user' %}"
    "{{ '<|user|>\n' + message['content'] + '\n' }}{% else %}{{ '<|assistant|>\n' + message['content'] + eos_token }}"
    "{% if not loop.last %}{{ '\n' }}{% endif %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";

const std::string kDeepSeek =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '<User>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}{{ '<Assistant>' + message['content'] + eos_token }}"
    "{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<Assistant><think>\n' }}{% endif %}";

const std::string kVicuna =
    "{% if messages[0]['role'] != 'system' %}{{ 'A chat. ' }}{% endif %}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + ' ' }}{% elif message['role'] == 'user' %}"
    "{{ 'USER: ' + message['content'] + ' ' }}{% else %}{{ 'ASSISTANT: ' + message['content'] + eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

const std::string kPhi3 =
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ '<|endoftext|>' }}{% endif %}";

const std::string kLlama3First =
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' "
    "+ "
    "message['content'] + '<|eot_id|>' }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}";

const std::string kMpt =
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n<|im_start|>assistant\n' }}{% endif %}";

std::shared_ptr<const ChatTemplate> make_template(const std::string& source, const std::string& bos = "<s>",
                                                  const std::string& eos = "</s>") {
  return HfChatTemplate::create(source, {{"bos_token", bos}, {"eos_token", eos}}).value();
}

void check(const RoleText& text, const std::string& open, const std::string& close) {
  CHECK(text.open == open);
  CHECK(text.close == close);
}

// What PML writes is what the template writes, token for token.
void check_writes_as_template(const ChatTemplate& chat_template, const RoleTexts& texts,
                              bool with_default_system = false) {
  const ChatMessage system{"system", "Be brief."};
  const ChatMessage question{"user", "Name a colour."};
  const ChatMessage answer{"assistant", "Blue."};
  if (!texts.system_unsupported) {
    CHECK(written_with_roles(texts, {system, question}) == chat_template.render({system, question}, true).value());
  }
  const std::string conversation = written_with_roles(texts, {question, answer, question});
  const std::string rendered = chat_template.render({question, answer, question}, true).value();
  if (with_default_system) {
    CHECK(rendered.ends_with(conversation));
  } else {
    CHECK(rendered == conversation);
  }
}

}  // namespace

TEST_CASE("SmolLM2: BOS opens every turn, and the default system message is not asked for") {
  const auto chat_template = make_template(kSmolLm, "<|im_start|>", "<|im_end|>");
  const RoleTexts texts = split_role_texts(*chat_template, "<|im_start|>").value();
  check(texts.system, "<|im_start|>system\n", "<|im_end|>\n");
  check(texts.user, "<|im_start|>user\n", "<|im_end|>\n");
  check(texts.assistant, "<|im_start|>assistant\n", "<|im_end|>\n");
  CHECK(texts.generation_prompt == "<|im_start|>assistant\n");
  CHECK(texts.system_unsupported == std::nullopt);
  CHECK(texts.user_open_after_system == std::nullopt);
  CHECK(texts.bos.empty());
  check_writes_as_template(*chat_template, texts, /*with_default_system=*/true);
  SECTION("a template that puts the same token in front once more") {
    const auto doubled = make_template("{{ bos_token }}" + kSmolLm, "<|im_start|>", "<|im_end|>");
    const RoleTexts split = split_role_texts(*doubled, "<|im_start|>").value();
    CHECK(split.bos == "<|im_start|>");
    check(split.system, "<|im_start|>system\n", "<|im_end|>\n");
    check(split.user, "<|im_start|>user\n", "<|im_end|>\n");
  }
}

TEST_CASE("Llama 3: BOS stands in front of the first turn alone") {
  const auto chat_template = make_template(kLlama3, "<|begin_of_text|>");
  const RoleTexts texts = split_role_texts(*chat_template, "<|begin_of_text|>").value();
  check(texts.system, "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>");
  check(texts.user, "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>");
  check(texts.assistant, "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>");
  CHECK(texts.generation_prompt == "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(texts.bos == "<|begin_of_text|>");
  check_writes_as_template(*chat_template, texts);
}

TEST_CASE("Llama 3.1: the dates are not asked for") {
  const RoleTexts texts = split_role_texts(*make_template(kLlama31, "<|begin_of_text|>"), "<|begin_of_text|>").value();
  check(texts.system, "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>");
  check(texts.user, "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>");
  check(texts.assistant, "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>");
}

TEST_CASE("Llama 2: the system text stands in the first user turn, and BOS in front of every turn is dropped") {
  const auto chat_template = make_template(kLlama2);
  const RoleTexts texts = split_role_texts(*chat_template, "<s>").value();
  check(texts.system, "[INST] <<SYS>>\n", "\n<</SYS>>\n\n");
  check(texts.user, "[INST] ", " [/INST]");
  check(texts.assistant, " ", " </s>");
  CHECK(texts.generation_prompt.empty());
  CHECK(texts.user_open_after_system == "");
  CHECK(texts.bos == "<s>");
  CHECK(written_with_roles(texts, {{"system", "S"}, {"user", "Q"}}) ==
        chat_template->render({{"system", "S"}, {"user", "Q"}}, true).value());
  const RoleTexts builtin = builtin_role_texts("llama2").value();
  check(texts.system, builtin.system.open, builtin.system.close);
  check(texts.user, builtin.user.open, builtin.user.close);
  check(texts.assistant, builtin.assistant.open, builtin.assistant.close);
  CHECK(texts.user_open_after_system == builtin.user_open_after_system);
}

TEST_CASE("Mistral: no system role, or one inside the user's turn") {
  const auto first = make_template(kMistralFirst);
  const RoleTexts texts = split_role_texts(*first, "<s>").value();
  check(texts.user, "[INST] ", " [/INST]");
  check(texts.assistant, "", "</s> ");
  CHECK(texts.system_unsupported == "Conversation roles must alternate user/assistant/user/assistant/...");
  check(texts.system, "", "");
  check_writes_as_template(*first, texts);

  const auto later = make_template(kMistralLater);
  const RoleTexts later_texts = split_role_texts(*later, "<s>").value();
  check(later_texts.user, "[INST] ", "[/INST]");
  check(later_texts.assistant, " ", "</s>");
  check(later_texts.system, "[INST] ", "\n\n");
  CHECK(later_texts.user_open_after_system == "");
  CHECK(later_texts.bos == "<s>");
  check_writes_as_template(*later, later_texts);
}

TEST_CASE("Gemma: the template's own words say that there is no system role") {
  const auto chat_template = make_template(kGemma, "<bos>");
  const RoleTexts texts = split_role_texts(*chat_template, "<bos>").value();
  check(texts.user, "<start_of_turn>user\n", "<end_of_turn>\n");
  check(texts.assistant, "<start_of_turn>model\n", "<end_of_turn>\n");
  CHECK(texts.generation_prompt == "<start_of_turn>model\n");
  CHECK(texts.system_unsupported == "System role not supported");
  check_writes_as_template(*chat_template, texts);
}

TEST_CASE("Zephyr: no BOS in the template") {
  const auto chat_template = make_template(kZephyr);
  const RoleTexts texts = split_role_texts(*chat_template, "<s>").value();
  check(texts.system, "<|system|>\n", "</s>\n");
  check(texts.user, "<|user|>\n", "</s>\n");
  check(texts.assistant, "<|assistant|>\n", "</s>\n");
  CHECK(texts.generation_prompt == "<|assistant|>\n");
  CHECK(texts.bos.empty());
  check_writes_as_template(*chat_template, texts);
}

TEST_CASE("templates that write a turn differently in different places") {
  SECTION("an empty thought in front of the last answer alone") {
    const RoleTexts texts = split_role_texts(*make_template(kThinking), "").value();
    check(texts.assistant, "<|im_start|>assistant\n", "<|im_end|>\n");
    check(texts.user, "<|im_start|>user\n", "<|im_end|>\n");
  }
  SECTION("BOS and EOS are the same token; turns are separated, not ended") {
    const auto chat_template = make_template(kOlmo, "<|endoftext|>", "<|endoftext|>");
    const RoleTexts texts = split_role_texts(*chat_template, "<|endoftext|>").value();
    check(texts.user, "<|user|>\n", "\n");
    check(texts.assistant, "<|assistant|>\n", "<|endoftext|>\n");
    check(texts.system, "<|system|>\n", "\n");
    CHECK(texts.bos == "<|endoftext|>");
    check_writes_as_template(*chat_template, texts);
  }
  SECTION("no close for user and system, a thought opened for generation alone") {
    const auto chat_template = make_template(kDeepSeek);
    const RoleTexts texts = split_role_texts(*chat_template, "<s>").value();
    check(texts.system, "", "");
    check(texts.user, "<User>", "");
    check(texts.assistant, "<Assistant>", "</s>");
    CHECK(texts.generation_prompt == "<Assistant><think>\n");
    check_writes_as_template(*chat_template, texts);
  }
  SECTION("plain words, and a default system message without marks of its own") {
    const auto chat_template = make_template(kVicuna);
    const RoleTexts texts = split_role_texts(*chat_template, "<s>").value();
    check(texts.system, "", " ");
    check(texts.user, "USER: ", " ");
    check(texts.assistant, "ASSISTANT: ", "</s>");
    CHECK(texts.generation_prompt == "ASSISTANT:");
    check_writes_as_template(*chat_template, texts, /*with_default_system=*/true);
  }
  SECTION("a token of its own behind a conversation that is not to be continued") {
    const auto chat_template = make_template(kPhi3);
    const RoleTexts texts = split_role_texts(*chat_template, "<s>").value();
    check(texts.system, "<|system|>\n", "<|end|>\n");
    check(texts.user, "<|user|>\n", "<|end|>\n");
    check(texts.assistant, "<|assistant|>\n", "<|end|>\n");
    CHECK(texts.generation_prompt == "<|assistant|>\n");
  }
  SECTION("the answer is opened whether asked for or not") {
    const RoleTexts texts = split_role_texts(*make_template(kLlama3First, "<s>"), "<s>").value();
    check(texts.user, "<|start_header_id|>user<|end_header_id|>\n\n",
          "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    check(texts.assistant, "", "<|eot_id|>");
    CHECK(texts.generation_prompt.empty());
  }
  SECTION("line breaks between turns, none in front of a conversation without a system text") {
    const RoleTexts texts = split_role_texts(*make_template(kMpt), "").value();
    check(texts.system, "<|im_start|>system\n", "<|im_end|>\n");
    check(texts.user, "<|im_start|>user\n", "<|im_end|>");
    check(texts.assistant, "\n<|im_start|>assistant\n", "<|im_end|>\n");
    CHECK(texts.generation_prompt == "\n<|im_start|>assistant\n");
  }
}

TEST_CASE("a template that cannot be split is refused with the reason") {
  const auto reason = [](const std::string& source) {
    const auto texts = split_role_texts(*make_template(source), "<s>");
    REQUIRE_FALSE(texts.ok());
    return texts.error().message;
  };
  CHECK(reason("{{ messages[0].content }}").find("leaves out") != std::string::npos);
  CHECK(reason("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}").find("repeats") !=
        std::string::npos);
  CHECK(reason("{% for m in messages[::-1] %}{{ m.content }}{% endfor %}").find("moves") != std::string::npos);
  CHECK(reason("{{ raise_exception('tools only') }}").find("tools only") != std::string::npos);
  CHECK(reason("{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}").find("first user turn") !=
        std::string::npos);
}

TEST_CASE("a template that drops the system message has no system role") {
  const RoleTexts texts =
      split_role_texts(*make_template("{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}\n"
                                      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"),
                       "")
          .value();
  REQUIRE(texts.system_unsupported.has_value());
  CHECK(texts.system_unsupported->find("system message") != std::string::npos);
  check(texts.user, "<user>", "\n");
}

TEST_CASE("built-in texts") {
  const RoleTexts chatml = builtin_role_texts("chatml").value();
  check(chatml.user, "<|im_start|>user\n", "<|im_end|>\n");
  check(builtin_role_texts("mpt").value().assistant, chatml.assistant.open, chatml.assistant.close);
  const RoleTexts falcon = builtin_role_texts("falcon").value();
  check(falcon.user, "User: ", "\n\n");
  check(falcon.system, "", "\n\n");
  CHECK(falcon.generation_prompt == "Assistant:");
  CHECK(builtin_role_texts("no such family") == std::nullopt);
}

TEST_CASE("a model directory's role texts") {
  const RoleTexts smollm2 = load_role_texts(model_directory());
  check(smollm2.system, "<|im_start|>system\n", "<|im_end|>\n");
  check(smollm2.user, "<|im_start|>user\n", "<|im_end|>\n");
  check(smollm2.assistant, "<|im_start|>assistant\n", "<|im_end|>\n");
  CHECK(smollm2.generation_prompt == "<|im_start|>assistant\n");
  CHECK(smollm2.origin == "chat template");
  CHECK(load_role_texts(oracle_directory() / "llama2-tokenizer").system.open == "[INST] <<SYS>>\n");

  const TemporaryDirectory directory;
  const auto origin = [&] { return load_role_texts(directory.path()).origin; };
  CHECK(origin() == "plain text (the model has no chat template)");
  directory.write("config.json", R"({"model_type": "falcon"})");
  CHECK(origin() == "built-in (falcon)");
  directory.write("config.json", R"({"model_type": "llama", "vocab_size": 32000})");
  CHECK(origin() == "built-in (llama2)");
  directory.write("config.json", R"({"model_type": "llama", "vocab_size": 128256})");
  CHECK(origin().find("plain text") == 0);
  directory.write("tokenizer_config.json", R"({"chat_template": "{{ messages[0].content }}"})");
  CHECK(origin().find("cannot be split") != std::string::npos);
  directory.write("config.json", "{");
  CHECK(message_thrown([&] { load_role_texts(directory.path()); }).find("config.json") != std::string::npos);
}

TEST_CASE("role texts hold no control token but those they spell") {
  const auto tokenizer = default_tokenizer();
  const RoleTexts texts = load_role_texts(model_directory());
  const TokenId start = tokenizer->token_to_id("<|im_start|>").value();
  const TokenId end = tokenizer->token_to_id("<|im_end|>").value();
  CHECK(tokenizer->split_control_tokens(texts.user.open) == std::vector<TextPiece>{start, "user\n"});
  CHECK(tokenizer->split_control_tokens(texts.user.close) == std::vector<TextPiece>{end, "\n"});
}

}  // namespace promptcached::testing
