// What must hold for every compiled schema and every plan, checked from the outside. Used by the property tests and by
// the fuzz target; each function returns what is wrong, or an empty string.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/pml/assembly_plan.h"
#include "core/pml/schema.h"

namespace promptcached::pml::invariants {

inline const Module& module_at(const Schema& schema, ModuleIndex index) {
  return schema.modules.at(static_cast<std::size_t>(index));
}

inline const Module& module_of_entry(const Schema& schema, EntryIndex entry) {
  return module_at(schema, schema.entries.at(static_cast<std::size_t>(entry)).module);
}

// Positions of a module's own text, and of its slots if asked for, below `limit`.
inline std::vector<std::int32_t> own_positions(const Module& module, bool slots, std::int32_t limit) {
  std::vector<std::int32_t> positions;
  for (const TokenRun& run : module.text) {
    for (std::int32_t at = run.start; at < std::min(run.end(), limit); ++at) {
      positions.push_back(at);
    }
  }
  for (const Parameter& slot : module.parameters) {
    for (std::int32_t at = slot.start; slots && at < std::min(slot.start + slot.length, limit); ++at) {
      positions.push_back(at);
    }
  }
  return positions;
}

inline bool insert_all(std::set<std::int32_t>& seen, const std::vector<std::int32_t>& positions) {
  return std::ranges::all_of(positions, [&](std::int32_t position) { return seen.insert(position).second; });
}

inline std::string check_module(const Schema& schema, ModuleIndex index) {
  const Module& module = module_at(schema, index);
  if (module.start < 0 || module.end < module.start || module.end > schema.positions) {
    return module.path + ": span outside the schema";
  }
  const Module* found = find_module(schema, module.path);
  if (found != &module) {
    return module.path + ": not found by its path";
  }
  std::set<std::int32_t> taken;
  if (!insert_all(taken, own_positions(module, true, schema.positions))) {
    return module.path + ": text and slots overlap";
  }
  std::int32_t before = module.start;
  for (const TokenRun& run : module.text) {
    if (run.tokens.empty() || run.start < before || run.end() > module.end) {
      return module.path + ": a run is empty, out of order or outside";
    }
    before = run.end() + 1;  // touching runs are merged
  }
  for (const Parameter& slot : module.parameters) {
    if (slot.start < module.start || slot.start + slot.length > module.end ||
        slot.placeholder.size() != static_cast<std::size_t>(slot.length)) {
      return module.path + ": a slot is outside or has not its placeholders";
    }
  }
  std::int32_t end_before = module.start;
  int union_before = 0;
  std::int32_t union_start = 0;
  std::int32_t union_end = 0;
  for (const ModuleIndex child_index : module.children) {
    const Module& child = module_at(schema, child_index);
    const bool same_union = child.union_number != 0 && child.union_number == union_before;
    if (child.parent != index || child_index <= index || child.end > module.end) {
      return child.path + ": not inside its parent";
    }
    if (same_union ? child.start != union_start : child.start < end_before) {
      return child.path + ": starts at the wrong place";
    }
    union_end = same_union ? std::max(union_end, child.end) : child.end;
    union_before = child.union_number;
    union_start = child.start;
    end_before = union_end;
    for (const std::int32_t position : own_positions(module, true, schema.positions)) {
      if (position >= child.start && position < child.end) {
        return child.path + ": overlaps its parent's own tokens";
      }
    }
  }
  return {};
}

// A pass computes tokens at distinct positions, and sees nothing else at any of them.
inline std::string check_pass(const Schema& schema, std::size_t number) {
  const EncodingPass& pass = schema.passes[number];
  const std::string name = "pass " + std::to_string(number);
  std::set<std::int32_t> positions;
  for (const EntryIndex entry : pass.entries) {
    if (schema.entries.at(static_cast<std::size_t>(entry)).pass != static_cast<int>(number)) {
      return name + ": an entry says it is in another pass";
    }
    if (!insert_all(positions, own_positions(module_of_entry(schema, entry), true, schema.positions))) {
      return name + ": entries overlap";
    }
  }
  const std::size_t own = positions.size();
  for (const ContextRef& ref : pass.context) {
    if (schema.entries.at(static_cast<std::size_t>(ref.entry)).pass >= static_cast<int>(number)) {
      return name + ": context from a later pass";
    }
    const auto seen = own_positions(module_of_entry(schema, ref.entry), ref.placeholders, ref.limit);
    if (seen.empty() || !insert_all(positions, seen)) {
      return name + ": context that shows nothing, or overlaps";
    }
  }
  if (own == 0 && !pass.context.empty()) {
    return name + ": context without tokens";
  }
  if (schema.attention != AttentionMode::kContextual && pass.entries.size() != 1) {
    return name + ": several entries";
  }
  return {};
}

inline std::string check_schema(const Schema& schema) {
  if (schema.modules.empty() || schema.modules[0].path != "#root" || schema.modules[0].end != schema.positions) {
    return "no proper root";
  }
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < schema.modules.size(); ++i) {
    const Entry& entry = schema.entries.at(i);
    if (entry.module != static_cast<ModuleIndex>(i) || entry.scaffold != -1) {
      return "entry " + std::to_string(i) + " is not its module's own";
    }
    if (std::string problem = check_module(schema, static_cast<ModuleIndex>(i)); !problem.empty()) {
      return problem;
    }
    tokens += schema.modules[i].token_count();
  }
  if (tokens != schema.token_count) {
    return "token count";
  }
  std::size_t entries = 0;
  for (std::size_t i = 0; i < schema.passes.size(); ++i) {
    if (std::string problem = check_pass(schema, i); !problem.empty()) {
      return problem;
    }
    entries += schema.passes[i].entries.size();
  }
  if (entries != schema.entries.size()) {
    return "an entry is in no pass, or in several";
  }
  for (std::size_t i = 0; i < schema.scaffolds.size(); ++i) {
    const Scaffold& scaffold = schema.scaffolds[i];
    if (scaffold.modules.size() < 2 || !std::ranges::is_sorted(scaffold.modules) ||
        scaffold.entries.size() != scaffold.modules.size()) {
      return "a scaffold is not well-formed";
    }
    for (std::size_t member = 0; member < scaffold.modules.size(); ++member) {
      const Entry& entry = schema.entries.at(static_cast<std::size_t>(scaffold.entries[member]));
      if (entry.module != scaffold.modules[member] || entry.scaffold != static_cast<int>(i)) {
        return "a scaffold's entry is not its own";
      }
    }
  }
  return {};
}

inline std::string check_part(const Schema& schema, const CachedPart& part, std::set<std::int32_t>& taken) {
  const Module& module = module_of_entry(schema, part.entry);
  std::vector<std::int32_t> positions;  // of the module's text tokens, by offset
  for (const TokenRun& run : module.text) {
    for (std::int32_t at = run.start; at < run.end(); ++at) {
      positions.push_back(at);
    }
  }
  if (part.ranges.empty()) {
    return module.path + ": a part without ranges";
  }
  for (const CachedRange& range : part.ranges) {
    if (range.count <= 0 || range.offset < 0 ||
        static_cast<std::size_t>(range.offset) + static_cast<std::size_t>(range.count) > positions.size()) {
      return module.path + ": a range outside the entry's tokens";
    }
    for (std::int32_t i = 0; i < range.count; ++i) {
      if (positions[static_cast<std::size_t>(range.offset + i)] != range.start + i) {
        return module.path + ": a range's offset and position disagree";
      }
      if (!taken.insert(range.start + i).second) {
        return module.path + ": two cached tokens at one position";
      }
    }
  }
  return {};
}

inline std::string check_plan(const AssemblyPlan& plan, const ResolveOptions& options, std::int32_t max_positions) {
  std::set<std::int32_t> taken;
  std::int32_t before = -1;
  for (const CachedPart& part : plan.cached) {
    if (std::string problem = check_part(*plan.schema, part, taken); !problem.empty()) {
      return problem;
    }
    if (part.ranges.front().start <= before) {
      return "cached parts out of order";
    }
    before = part.ranges.front().start;
  }
  if (plan.new_tokens.empty()) {
    return "no new token";
  }
  for (std::size_t i = 0; i < plan.new_tokens.size(); ++i) {
    if (i > 0 && plan.new_tokens[i].position <= plan.new_tokens[i - 1].position) {
      return "new tokens out of order";
    }
    if (!taken.insert(plan.new_tokens[i].position).second) {
      return "a new token where there is another";
    }
  }
  if (plan.next_position != *taken.rbegin() + 1) {
    return "generation does not continue at the last position + 1";
  }
  if (std::int64_t{plan.next_position} + options.max_tokens > max_positions) {
    return "passes the model's maximum";
  }
  const std::vector<TokenId> ids = prompt_token_ids(plan);
  if (static_cast<std::size_t>(plan.prompt_tokens()) != taken.size() || ids.size() != taken.size()) {
    return "token counts disagree";
  }
  for (const std::int32_t count : {1, 4, 16}) {
    const std::vector<TokenId> last = last_prompt_token_ids(plan, count);
    if (last.size() != std::min<std::size_t>(static_cast<std::size_t>(count), ids.size()) ||
        !std::equal(last.rbegin(), last.rend(), ids.rbegin())) {
      return "the last tokens are not the end of all";
    }
  }
  if (plan.recomputes_last_token && plan.new_tokens.size() != 1) {
    return "recomputes more than the last token";
  }
  return {};
}

}  // namespace promptcached::pml::invariants
