// How a schema's modules are encoded: which forward passes, and what each attends to (docs/pml.md, "Encoding modes").
#pragma once

#include "core/base/status.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

// Fills in schema.entries, schema.passes and the entries of its scaffolds. Error kInvalidPml when the passes would name
// an unreasonable number of others (deep or wide schemas in contextual mode).
Status plan_encoding(Schema& schema);

}  // namespace promptcached::pml
