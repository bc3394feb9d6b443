#include "core/pml/scaffold_sets.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/pml/module_lookup.h"

namespace promptcached::pml {
namespace {

const Module& module_at(const Schema& schema, ModuleIndex index) {
  return schema.modules[static_cast<std::size_t>(index)];
}

Result<Scaffold> resolve_scaffold(const ScaffoldNode& node, const Schema& schema) {
  Scaffold scaffold;
  UnionChoices choices;
  for (const std::string& path : node.paths) {
    const std::optional<ModuleIndex> module = find_module_index(schema, path);
    if (!module || *module == kRoot) {
      return make_error_at(ErrorCode::kUnknownModule, node.location,
                           "the scaffold names the module '" + shown(path) + "', which the schema does not have" +
                               hint_for_unknown_path(schema, path));
    }
    if (!choices.choose(schema, *module)) {
      return make_error_at(ErrorCode::kUnionConflict, node.location,
                           "no prompt can import all modules of this scaffold: '" + path +
                               "' and another one exclude each other in a union");
    }
    scaffold.modules.push_back(*module);
  }
  std::ranges::sort(scaffold.modules);  // indices are in document order
  const auto repeat = std::ranges::adjacent_find(scaffold.modules);
  if (repeat != scaffold.modules.end()) {
    return make_error_at(ErrorCode::kDuplicateName, node.location,
                         "the scaffold names the module '" + module_at(schema, *repeat).path + "' twice");
  }
  return scaffold;
}

}  // namespace

bool UnionChoices::choose(const Schema& schema, ModuleIndex module) {
  for (ModuleIndex at = module; at != kRoot; at = module_at(schema, at).parent) {
    const int number = module_at(schema, at).union_number;
    if (number != 0 && chosen_.emplace(number, at).first->second != at) {
      return false;
    }
  }
  return true;
}

bool UnionChoices::excludes(const Schema& schema, ModuleIndex module) const {
  if (chosen_.empty()) {
    return false;
  }
  for (ModuleIndex at = module; at != kRoot; at = module_at(schema, at).parent) {
    const auto choice = chosen_.find(module_at(schema, at).union_number);
    if (choice != chosen_.end() && choice->second != at) {
      return true;
    }
  }
  return false;
}

Status resolve_scaffolds(const SchemaTree& tree, Schema& schema) {
  std::map<std::vector<ModuleIndex>, SourceLocation> known;
  for (const ScaffoldNode& node : tree.scaffolds) {
    Result<Scaffold> scaffold = resolve_scaffold(node, schema);
    if (!scaffold.ok()) {
      return scaffold.error();
    }
    const auto [first, added] = known.emplace(scaffold->modules, node.location);
    if (!added) {
      return make_error_at(ErrorCode::kDuplicateName, node.location,
                           "the scaffold of line " + std::to_string(first->second.line) + " has the same modules");
    }
    schema.scaffolds.push_back(std::move(*scaffold));
  }
  return {};
}

}  // namespace promptcached::pml
