#include "core/pml/prompt_lint.h"

#include <map>
#include <set>

namespace promptcached::pml {
namespace {

using Modules = std::set<ModuleIndex>;

const Module& module_at(const Schema& schema, ModuleIndex index) {
  return schema.modules[static_cast<std::size_t>(index)];
}

// The modules that the plan reads, and those they are nested in: a module without text of its own is no part of a plan.
Modules used_modules(const AssemblyPlan& plan) {
  Modules used{kRoot};
  for (const CachedPart& part : plan.cached) {
    ModuleIndex index = plan.schema->entries[static_cast<std::size_t>(part.entry)].module;
    for (; index > kRoot; index = module_at(*plan.schema, index).parent) {
      used.insert(index);
    }
  }
  return used;
}

void lint_unions(const Schema& schema, const Modules& used, std::vector<std::string>& warnings) {
  struct Union {
    std::string members;
    bool is_used = false;
  };
  std::map<int, Union> unions;
  for (ModuleIndex index = 0; index < static_cast<ModuleIndex>(schema.modules.size()); ++index) {
    const Module& module = module_at(schema, index);
    if (module.union_number > 0 && used.contains(module.parent)) {
      Union& found = unions[module.union_number];
      found.members += (found.members.empty() ? "" : ", ") + module.path;
      found.is_used = found.is_used || used.contains(index);
    }
  }
  for (const auto& [number, found] : unions) {
    if (!found.is_used) {
      warnings.push_back("union " + std::to_string(number) + " is not used: none of " + found.members + " is imported");
    }
  }
}

void lint_lengths(const Schema& schema, const Modules& used, std::int32_t block_tokens,
                  std::vector<std::string>& warnings) {
  for (const ModuleIndex index : used) {
    const Module& module = module_at(schema, index);
    const std::int32_t tokens = module.token_count();
    if (index != kRoot && tokens > 0 && tokens < block_tokens) {
      warnings.push_back("module '" + module.path + "' has " + std::to_string(tokens) +
                         " tokens: so few are computed almost as soon as they are found; join small modules");
    }
  }
}

}  // namespace

std::vector<std::string> lint_prompt(const AssemblyPlan& plan, std::int32_t block_tokens, bool has_roles) {
  std::vector<std::string> warnings;
  for (const Warning& warning : plan.warnings) {
    warnings.push_back("line " + std::to_string(warning.location.line) + ", column " +
                       std::to_string(warning.location.column) + ": " + warning.message);
  }
  if (plan.schema == nullptr) {
    return warnings;
  }
  const Modules used = used_modules(plan);
  lint_unions(*plan.schema, used, warnings);
  lint_lengths(*plan.schema, used, block_tokens, warnings);
  if (has_roles && !plan.has_role_tags) {
    warnings.emplace_back(
        "neither the schema nor the prompt has a role tag (<system>, <user>, <assistant>): the model was trained on "
        "conversations, and reads this as plain text");
  }
  return warnings;
}

}  // namespace promptcached::pml
