// The layout: every module's tokens and position IDs.
#pragma once

#include "core/base/status.h"
#include "core/pml/schema.h"
#include "core/pml/schema_tree.h"

namespace promptcached::pml {

// Fills in `schema`'s modules, positions, token count and path index, and adds warnings. Errors: kInvalidPml,
// kArgumentTooLong (a param's placeholder text), kContextLengthExceeded (with both numbers, at the first text or param
// that passes the model's maximum).
Status lay_out(const SchemaTree& tree, const ModelText& model, Schema& schema);

}  // namespace promptcached::pml
