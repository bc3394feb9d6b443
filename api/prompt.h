// From a prompt, in any of its forms, to what the engine computes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/routes.h"
#include "api/wire/fidelity.h"
#include "core/base/status.h"
#include "core/engine/generate_request.h"

namespace promptcached::api {

struct PromptOptions {
  bool add_generation_prompt = true;
  std::optional<std::int32_t> max_tokens;
  std::int32_t default_max_tokens = 0;     // a default is no promise: it is what the context leaves, if that is less
  Fidelity fidelity = Fidelity::kModular;  // of a prompt with a schema
};

// With --log-prompts. The prompt is made for the log alone, hence only when it is wanted.
void log_prompt(const RouteCall& call, const std::function<std::string()>& prompt);

// Whether a text means to be a PML prompt: it begins with "<prompt", whatever whitespace, declaration or comment is in
// front.
bool looks_like_pml(std::string_view text);

// Both set version, plan and max_tokens of `request`. Errors are about the field `param`, unless they say another.

// Finds the schema of a PML prompt and joins the two.
Status place_pml(const RouteCall& call, const std::string& pml, const PromptOptions& options,
                 engine::GenerateRequest& request);
// A prompt without a schema. Errors: kEmptyPrompt, kContextLengthExceeded, kInvalidField (no such token).
Status place_tokens(const RouteCall& call, std::vector<TokenId> tokens, const PromptOptions& options,
                    engine::GenerateRequest& request, const std::string& param);

}  // namespace promptcached::api
