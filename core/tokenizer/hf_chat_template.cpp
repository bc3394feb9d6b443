#include "core/tokenizer/hf_chat_template.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer_config.h"

namespace promptcached {

Result<std::shared_ptr<const HfChatTemplate>> HfChatTemplate::create(
    std::string_view source, const std::map<std::string, std::string>& special_tokens) {
  const std::string variables = nlohmann::json(special_tokens).dump();
  PcHfTemplate* raw = nullptr;
  HfBytes message;
  const PcHfStatus status =
      pc_hf_template_new(source.data(), source.size(), variables.data(), variables.size(), &raw, message.out());
  if (status != kPcHfOk) {
    return hf_error(status, message, "chat template");
  }
  return std::shared_ptr<const HfChatTemplate>(new HfChatTemplate(HfTemplateHandle(raw), source));
}

Result<std::string> HfChatTemplate::render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    if (!is_valid_utf8(message.role) || !is_valid_utf8(message.content)) {
      return make_error(ErrorCode::kInvalidField, "a chat message is not valid UTF-8", "messages");
    }
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  // transformers passes tools and documents in any case, as None: templates ask `tools is not none`.
  const nlohmann::ordered_json context = {{"messages", std::move(list)},
                                          {"tools", nullptr},
                                          {"documents", nullptr},
                                          {"add_generation_prompt", add_generation_prompt}};
  return render_context(context.dump());
}

Result<std::string> HfChatTemplate::render_context(const std::string& context) const {
  HfBytes text;
  HfBytes message;
  const PcHfStatus status =
      pc_hf_template_render(handle_.get(), context.data(), context.size(), text.out(), message.out());
  if (status != kPcHfOk) {
    return hf_error(status, message, "chat template");
  }
  return to_string(text);
}

std::shared_ptr<const ChatTemplate> load_chat_template(const checkpoint::ModelFiles& files) {
  const TokenizerConfig config = read_tokenizer_config(files);
  if (!config.chat_template) {
    return nullptr;
  }
  auto chat_template = HfChatTemplate::create(*config.chat_template, config.special_tokens);
  if (!chat_template) {
    throw std::runtime_error(files.path().string() + ": " + chat_template.error().message);
  }
  return std::move(chat_template).value();
}

}  // namespace promptcached
