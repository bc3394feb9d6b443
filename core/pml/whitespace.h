// The whitespace rules of PML (docs/pml.md): what layout in a document becomes in the model's text.
#pragma once

#include <string>
#include <string_view>

#include "core/pml/schema.h"

namespace promptcached::pml {

// What stands beside a piece of text. For whitespace, role tags are elements.
enum class Edge {
  kElementStart,
  kElementEnd,   // of a module
  kDocumentEnd,  // of the schema or the prompt
  kParam,
  kBlock,  // a module, union, import or scaffold
  kRoleOpen,
  kRoleClose,
};

struct WhitespaceMode {
  WhitespaceRule rule = WhitespaceRule::kEdges;
  bool preserve = false;  // xml:space="preserve"
};

// `text` as the model sees it. `text` is not empty and stands between `left` and `right`.
std::string apply_whitespace(std::string_view text, Edge left, Edge right, WhitespaceMode mode);

}  // namespace promptcached::pml
