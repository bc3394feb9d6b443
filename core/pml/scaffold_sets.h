// Scaffolds: the sets of modules that are also encoded together.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/pml/schema.h"
#include "core/pml/schema_tree.h"

namespace promptcached::pml {

// Which member of each union is chosen, by union number.
class UnionChoices final {
 public:
  // Chooses `module` and its ancestors; false when one of them is in a union that has another member chosen.
  bool choose(const Schema& schema, ModuleIndex module);
  // True when `module` or an ancestor of it is in a union that has another member chosen.
  bool excludes(const Schema& schema, ModuleIndex module) const;

 private:
  std::unordered_map<int, ModuleIndex> chosen_;
};

// Fills in schema.scaffolds (their entries excepted) from the paths, which the laid-out schema must know. Errors:
// kUnknownModule, kDuplicateName (a module or a set twice), kUnionConflict (modules that no prompt can import
// together).
Status resolve_scaffolds(const SchemaTree& tree, Schema& schema);

}  // namespace promptcached::pml
