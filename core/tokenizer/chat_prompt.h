// Whole prompts to token ids: texts, and conversations through the model's chat template.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached {

// Control tokens that `text` spells become those tokens: whoever sends a whole prompt may write the template's own. BOS
// comes in front, once, if the model's tokenizer puts one there and `add_bos`. Errors as of Tokenizer::encode.
Result<std::vector<TokenId>> encode_text(const Tokenizer& tokenizer, std::string_view text, bool add_bos = true);

// Renders `context` (ChatTemplate::render_context) and encodes it as transformers' apply_chat_template(tokenize=True)
// does: control tokens that the template writes become those tokens, and none is added. What the context's texts spell
// like a control token stays text: no message can close its own turn. Errors: kInvalidField with the template's own
// message when it refuses the conversation, kEmptyPrompt; param "messages".
Result<std::vector<TokenId>> encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                         nlohmann::ordered_json context);

}  // namespace promptcached
