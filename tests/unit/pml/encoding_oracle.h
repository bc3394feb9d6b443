// A second statement of what a module's tokens see while they are encoded, taken from docs/pml.md and not from the
// passes. Slow and plain.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/pml/schema.h"
#include "tests/unit/pml/invariants.h"

namespace promptcached::pml::oracle {

// What can be seen: a position of a module's text or slots.
using Visible = std::set<std::pair<ModuleIndex, std::int32_t>>;

inline bool is_ancestor_or_self(const Schema& schema, ModuleIndex ancestor, ModuleIndex module) {
  for (ModuleIndex at = module; at >= 0; at = invariants::module_at(schema, at).parent) {
    if (at == ancestor) {
      return true;
    }
  }
  return false;
}

// Contextual: the modules that are there while `module` is encoded. On its own way down its own branches are; elsewhere
// a union is its scaffold member or nothing.
inline bool is_present(const Schema& schema, ModuleIndex other, ModuleIndex module) {
  for (ModuleIndex at = other; at != kRoot; at = invariants::module_at(schema, at).parent) {
    const Module& step = invariants::module_at(schema, at);
    if (step.union_number == 0 || is_ancestor_or_self(schema, at, module)) {
      continue;
    }
    bool other_member_on_the_way = false;
    for (ModuleIndex way = module; way != kRoot; way = invariants::module_at(schema, way).parent) {
      other_member_on_the_way |= invariants::module_at(schema, way).union_number == step.union_number;
    }
    if (other_member_on_the_way || !step.is_union_default) {
      return false;
    }
  }
  return true;
}

// What a token of `module` at `position` sees.
inline Visible expected(const Schema& schema, ModuleIndex module, std::int32_t position) {
  Visible visible;
  const std::int32_t start = invariants::module_at(schema, module).start;
  for (std::size_t i = 0; i < schema.modules.size(); ++i) {
    const auto other = static_cast<ModuleIndex>(i);
    const bool itself = other == module;
    std::int32_t limit = position;
    bool slots = true;
    if (schema.attention == AttentionMode::kContextual) {
      if (!is_present(schema, other, module)) {
        continue;
      }
    } else if (!itself) {
      if (schema.attention == AttentionMode::kIsolated || !is_ancestor_or_self(schema, other, module)) {
        continue;
      }
      limit = start;
      slots = false;
    }
    for (const std::int32_t at : invariants::own_positions(schema.modules[i], slots, limit)) {
      visible.emplace(other, at);
    }
  }
  return visible;
}

inline Visible shown_by_pass(const Schema& schema, const EncodingPass& pass, std::int32_t position) {
  Visible visible;
  for (const EntryIndex entry : pass.entries) {
    const ModuleIndex index = schema.entries[static_cast<std::size_t>(entry)].module;
    for (const std::int32_t at : invariants::own_positions(invariants::module_at(schema, index), true, position)) {
      visible.emplace(index, at);
    }
  }
  for (const ContextRef& ref : pass.context) {
    const ModuleIndex index = schema.entries[static_cast<std::size_t>(ref.entry)].module;
    for (const std::int32_t at : invariants::own_positions(invariants::module_at(schema, index), ref.placeholders,
                                                           std::min(ref.limit, position))) {
      visible.emplace(index, at);
    }
  }
  return visible;
}

// The first token of any module that its own pass shows something else than the mode says; empty if there is none.
inline std::string compare_visibility(const Schema& schema) {
  for (std::size_t i = 0; i < schema.modules.size(); ++i) {
    const auto index = static_cast<ModuleIndex>(i);
    const EncodingPass& pass = schema.passes.at(static_cast<std::size_t>(schema.entries.at(i).pass));
    for (const std::int32_t position : invariants::own_positions(schema.modules[i], true, schema.positions)) {
      if (expected(schema, index, position) != shown_by_pass(schema, pass, position)) {
        return schema.modules[i].path + " at position " + std::to_string(position);
      }
    }
  }
  return {};
}

}  // namespace promptcached::pml::oracle
