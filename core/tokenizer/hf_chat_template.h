// HfChatTemplate: a Jinja chat template, rendered by the Rust library.
#pragma once

#include <map>

#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/hf_call.h"

namespace promptcached {

class HfChatTemplate final : public ChatTemplate {
 public:
  // `special_tokens`: what the template may name, such as bos_token. Error kInternal when `source` does not compile.
  static Result<std::shared_ptr<const HfChatTemplate>> create(std::string_view source,
                                                              const std::map<std::string, std::string>& special_tokens);

  Result<std::string> render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const override;
  Result<std::string> render_context(const std::string& context) const override;
  const std::string& source() const override { return source_; }

 private:
  HfChatTemplate(HfTemplateHandle handle, std::string_view source) : handle_(std::move(handle)), source_(source) {}

  HfTemplateHandle handle_;  // immutable: rendering takes it as const
  std::string source_;
};

}  // namespace promptcached
