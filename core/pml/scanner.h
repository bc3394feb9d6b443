// The strict reading of PML's XML, before the tree is built.
//
// XML libraries forgive: pugixml keeps undeclared entities as text, takes an attribute given twice and skips a DOCTYPE.
// The scanner refuses all of that, and everything else that is not well-formed, in one pass over the bytes without
// recursion, so hostile nesting ends here at the depth limit. What it lets through is what pugixml reads the same way.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/pml/schema.h"
#include "core/pml/source_map.h"

namespace promptcached::pml {

struct ScannedRoleTag {
  std::size_t offset = 0;  // of its '<'
  Role role = Role::kUser;
  bool closing = false;
};

struct ScannedSource {
  // The source with each role tag rewritten as a processing instruction of the same length. Role tags need not balance,
  // so as tags they would not be XML; offsets stay those of the source.
  std::string text;
  std::vector<ScannedRoleTag> role_tags;  // document order
};

// Errors: kInvalidPml, kDuplicateName (an attribute given twice), kBodyTooLarge (more markup than the limit).
Result<ScannedSource> scan(std::string_view source, const SourceMap& map, const Limits& limits);

}  // namespace promptcached::pml
