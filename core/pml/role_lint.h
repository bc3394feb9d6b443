// Role tags that do not fit: worth a warning, never an error, since schema and prompt are joined only later.
#pragma once

#include <optional>
#include <string>

#include "core/pml/schema.h"
#include "core/pml/schema_tree.h"

namespace promptcached::pml {

// Which role is open while tags are read in position order.
class RoleState final {
 public:
  // Takes the tag in; what is odd about it, or nullopt.
  std::optional<std::string> apply(const RoleTag& tag);

 private:
  std::optional<RoleTag> open_;
};

// Warns about tags that cannot fit whatever a prompt imports: each module is read after the text before it and its
// ancestors' text, as if no other module were imported.
void lint_roles(const SchemaTree& tree, std::vector<Warning>& warnings);

}  // namespace promptcached::pml
