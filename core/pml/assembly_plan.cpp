#include "core/pml/assembly_plan.h"

#include <algorithm>
#include <utility>

namespace promptcached::pml {
namespace {

// The tokens of the part's ranges, with their positions. Ranges and runs are both in position order, so one walk over
// the module's text serves all ranges.
void append_part(const Module& module, const CachedPart& part, std::vector<NewToken>& tokens) {
  auto run = module.text.begin();
  std::int32_t run_offset = 0;  // of the run's first token among the module's
  for (const CachedRange& range : part.ranges) {
    for (std::int32_t at = range.offset; at < range.offset + range.count; ++at) {
      while (at - run_offset >= static_cast<std::int32_t>(run->tokens.size())) {
        run_offset += static_cast<std::int32_t>(run->tokens.size());
        ++run;
      }
      const std::int32_t in_run = at - run_offset;
      tokens.push_back({run->tokens[static_cast<std::size_t>(in_run)], run->start + in_run});
    }
  }
}

}  // namespace

std::int32_t CachedPart::token_count() const {
  std::int32_t count = 0;
  for (const CachedRange& range : ranges) {
    count += range.count;
  }
  return count;
}

std::int32_t AssemblyPlan::cached_tokens() const {
  std::int32_t count = 0;
  for (const CachedPart& part : cached) {
    count += part.token_count();
  }
  return count;
}

std::vector<TokenId> prompt_token_ids(const AssemblyPlan& plan) {
  std::vector<NewToken> tokens = plan.new_tokens;
  for (const CachedPart& part : plan.cached) {
    const Entry& entry = plan.schema->entries[static_cast<std::size_t>(part.entry)];
    append_part(plan.schema->modules[static_cast<std::size_t>(entry.module)], part, tokens);
  }
  std::ranges::sort(tokens, {}, &NewToken::position);
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (const NewToken& token : tokens) {
    ids.push_back(token.token);
  }
  return ids;
}

}  // namespace promptcached::pml
