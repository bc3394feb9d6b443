// Role texts: what a chat template writes around the turns of a conversation.
//
// PML's role tags (<system>, <user>, <assistant>) are the only way to emit control tokens. Their texts are taken from
// the model's own chat template by rendering it with marker content and splitting the result, so that a prompt written
// in PML tokenises as the conversation does. Templates that put the system text inside the first user turn (Llama 2)
// have built-in texts, as have Falcon and MPT; a config file may override any of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/model_files.h"

namespace promptcached {

struct ChatMessage {
  std::string role;
  std::string content;
};

// A Jinja chat template as Hugging Face models ship it, rendered exactly as transformers renders it.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Error kInvalidField with the template's own message when it raises (`raise_exception`).
  virtual Result<std::string> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const = 0;
  // The same with everything a template may ask for, as a JSON object: what transformers' apply_chat_template passes
  // ("messages", "tools", "documents", "add_generation_prompt"), and more.
  virtual Result<std::string> render_context(const std::string& context) const = 0;
  virtual const std::string& source() const = 0;
};

// The template of a model directory (chat_template.jinja, else tokenizer_config.json); null when it has none.
// Throws std::runtime_error naming the file when it cannot be read or compiled (start-up only).
std::shared_ptr<const ChatTemplate> load_chat_template(const checkpoint::ModelFiles& files);

struct RoleText {
  std::string open;
  std::string close;
};

// BOS is never part of these texts (it appears once, at position 0), nor is a default system message.
struct RoleTexts {
  RoleText system;
  RoleText user;
  RoleText assistant;
  std::string generation_prompt;  // what opens the assistant's answer after a closed user turn
  // Set when the model's template has no such role (some have no system role): the reason, told when the tag is used.
  std::optional<std::string> system_unsupported;
  // What opens a user turn right after a closed system text, where that is not `user.open`: templates that put the
  // system text inside a user turn (Llama 2, Mistral, Gemma 3) have opened the turn already.
  std::optional<std::string> user_open_after_system{};
  // BOS as the template itself spells it in front of a conversation; empty if it writes none. A model whose tokenizer
  // puts none in front (Tokenizer::bos_id) still wants this one at position 0.
  std::string bos{};
  // Where the texts come from, for the log: "chat template", "built-in (llama2)", "plain text (<why>)".
  std::string origin{};
};

// Splits `chat_template` into role texts. `bos` is the spelling of the BOS token to drop (empty: none). Fails with the
// reason when the template cannot be split; callers then use built-in texts or refuse role tags.
Result<RoleTexts> split_role_texts(const ChatTemplate& chat_template, const std::string& bos);

// Built-in texts by family name: "chatml", "llama2", "falcon", "mpt". Nullopt for others.
std::optional<RoleTexts> builtin_role_texts(const std::string& family);

// What the server uses for a model directory: the template's own texts, else the built-in ones for the architecture in
// config.json, else plain texts without control tokens. Throws std::runtime_error on a broken file (start-up only).
RoleTexts load_role_texts(const checkpoint::ModelFiles& files);

}  // namespace promptcached
