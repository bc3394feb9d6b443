// SchemaVersion: a compiled schema together with the identity of its KV.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/kv/module_key.h"
#include "core/pml/schema.h"

namespace promptcached::engine {

// Immutable. Requests in flight hold the version they started with, so a schema can be replaced or deleted under them.
struct SchemaVersion {
  std::shared_ptr<const pml::Schema> schema;
  std::vector<kv::ModuleKey> keys;  // by EntryIndex
};

}  // namespace promptcached::engine
