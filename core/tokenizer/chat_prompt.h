// Conversations to token ids, through the model's chat template.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached {

// Renders `context` (ChatTemplate::render_context) and encodes it as transformers' apply_chat_template(tokenize=True)
// does: control tokens that the template writes become those tokens, and none is added. What the context's texts spell
// like a control token stays text: no message can close its own turn. Errors: kInvalidField with the template's own
// message when it refuses the conversation, kEmptyPrompt; param "messages".
Result<std::vector<TokenId>> encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                         nlohmann::ordered_json context);

}  // namespace promptcached
