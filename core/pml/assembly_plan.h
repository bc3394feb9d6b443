// AssemblyPlan: what a prompt is made of. Resolving a prompt yields one; the engine executes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

// A stretch of an entry's text tokens at consecutive positions, read in place.
struct CachedRange {
  std::int32_t offset = 0;  // index of its first token among the entry's text tokens (0 = the entry's first)
  std::int32_t count = 0;
  std::int32_t start = 0;  // position of its first token
  std::int32_t end() const { return start + count; }
};

// One imported module (or the root text), with the encoding chosen for it.
struct CachedPart {
  EntryIndex entry = 0;
  std::vector<CachedRange> ranges;  // position order; split where positions are not consecutive
  std::int32_t token_count() const;
};

struct NewToken {
  TokenId token = 0;
  std::int32_t position = 0;
};

struct AssemblyPlan {
  std::shared_ptr<const Schema> schema;  // null: a prompt without modules
  std::vector<CachedPart> cached;    // position order of their first token; modules without text of their own have none
  std::vector<NewToken> new_tokens;  // position order, never empty: arguments, free text, generation prompt
  std::int32_t next_position = 0;    // of the first generated token: last position + 1
  // True when the prompt had no new text: new_tokens then holds its last token, recomputed for logits, and the cached
  // range that held it is one token shorter.
  bool recomputes_last_token = false;
  bool has_role_tags = false;     // in the prompt, or in what it imports
  std::vector<Warning> warnings;  // role tags of the prompt that do not fit the roles open where they stand

  std::int32_t cached_tokens() const;
  std::int32_t prompt_tokens() const { return cached_tokens() + static_cast<std::int32_t>(new_tokens.size()); }
};

// The plan of a prompt without modules: its tokens, at positions 0, 1, … There must be one at least.
AssemblyPlan plain_plan(std::vector<TokenId> tokens);

// The same text without modules: all tokens of `plan`, at positions 0, 1, …, so that each sees all before it.
AssemblyPlan exact_plan(const AssemblyPlan& plan);

// All token ids of the plan in position order (for penalties and `echo`). Takes time in proportion to the whole prompt.
std::vector<TokenId> prompt_token_ids(const AssemblyPlan& plan);

// The last `count` of them, in time that does not depend on the modules' lengths (for stream decoding).
std::vector<TokenId> last_prompt_token_ids(const AssemblyPlan& plan, std::int32_t count);

// A parsed prompt, before it meets its schema. Opaque outside core/pml.
struct PromptDocument;

// Parses a PML prompt. Errors (param is "prompt"): kInvalidPml, kDuplicateName (an argument twice), kBodyTooLarge.
Result<std::shared_ptr<const PromptDocument>> parse_prompt(std::string_view source, const Limits& limits = {});

// The value of the prompt's `schema` attribute, and where its element stands (for kUnknownSchema).
const std::string& schema_name(const PromptDocument& prompt);
SourceLocation schema_location(const PromptDocument& prompt);

struct ResolveOptions {
  bool add_generation_prompt = true;
  std::int32_t max_tokens = 256;  // counted against the model's maximum position
};

// Joins a prompt with its schema: imports checked, arguments and texts placed, everything refusable refused (param is
// "prompt"). Errors: kUnknownSchema (the prompt names another one), kUnknownModule, kUnknownParameter,
// kDuplicateImport, kUnionConflict, kArgumentTooLong, kTextDoesNotFit, kContextLengthExceeded, kEmptyPrompt,
// kInvalidPml; with line and column.
Result<AssemblyPlan> resolve(std::shared_ptr<const Schema> schema, const PromptDocument& prompt, const ModelText& model,
                             const ResolveOptions& options);

}  // namespace promptcached::pml
