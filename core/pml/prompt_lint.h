// What is not wrong with a prompt, but probably not meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/pml/assembly_plan.h"

namespace promptcached::pml {

// A sentence each: unions of which nothing is imported, modules too short to be worth it (fewer tokens than
// `block_tokens`), no role tags though the model's chats have roles, and the plan's own warnings. `has_roles`: whether
// the model's texts for them hold control tokens.
std::vector<std::string> lint_prompt(const AssemblyPlan& plan, std::int32_t block_tokens, bool has_roles);

}  // namespace promptcached::pml
