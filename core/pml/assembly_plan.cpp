#include "core/pml/assembly_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace promptcached::pml {
namespace {

constexpr std::int32_t kAllTokens = std::numeric_limits<std::int32_t>::max();

// The last `count` tokens of the part's ranges, with their positions. Ranges and runs are both in position order, so
// one walk over the module's text serves all ranges.
void append_part(const Module& module, const CachedPart& part, std::int32_t count, std::vector<NewToken>& tokens) {
  auto run = module.text.begin();
  std::int32_t run_offset = 0;  // of the run's first token among the module's
  std::int32_t skipped = std::max(0, part.token_count() - count);
  for (const CachedRange& range : part.ranges) {
    const std::int32_t begin = std::min(skipped, range.count);
    skipped -= begin;
    for (std::int32_t at = range.offset + begin; at < range.offset + range.count; ++at) {
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

AssemblyPlan plain_plan(std::vector<TokenId> tokens) {
  AssemblyPlan plan;
  plan.new_tokens.reserve(tokens.size());
  for (const TokenId token : tokens) {
    plan.new_tokens.push_back({token, plan.next_position++});
  }
  return plan;
}

AssemblyPlan exact_plan(const AssemblyPlan& plan) {
  AssemblyPlan exact = plain_plan(prompt_token_ids(plan));
  exact.warnings = plan.warnings;
  return exact;
}

std::vector<TokenId> prompt_token_ids(const AssemblyPlan& plan) { return last_prompt_token_ids(plan, kAllTokens); }

std::vector<TokenId> last_prompt_token_ids(const AssemblyPlan& plan, std::int32_t count) {
  // The prompt's last tokens are among the last ones of each of its parts.
  const auto new_count = std::min<std::ptrdiff_t>(count, std::ssize(plan.new_tokens));
  std::vector<NewToken> tokens(plan.new_tokens.end() - new_count, plan.new_tokens.end());
  for (const CachedPart& part : plan.cached) {
    const Entry& entry = plan.schema->entries[static_cast<std::size_t>(part.entry)];
    append_part(plan.schema->modules[static_cast<std::size_t>(entry.module)], part, count, tokens);
  }
  std::ranges::sort(tokens, {}, &NewToken::position);
  std::vector<TokenId> ids;
  for (auto token = tokens.end() - std::min<std::ptrdiff_t>(count, std::ssize(tokens)); token != tokens.end();
       ++token) {
    ids.push_back(token->token);
  }
  return ids;
}

}  // namespace promptcached::pml
