// The parser: PML source to a tree of elements, text and role tags. Strict: what is not well-formed is refused.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/pml/document.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

// The root element of `source`. Errors, all but a too large body with a place: kInvalidPml, kDuplicateName,
// kBodyTooLarge. The depth of the tree is at most limits.max_depth, so it may be walked recursively.
Result<Element> parse_document(std::string_view source, const Limits& limits);

}  // namespace promptcached::pml
