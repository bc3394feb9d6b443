// SchemaJournal: where registered schemas outlive the process.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/pml/schema.h"

namespace promptcached::engine {

// How long a schema and each of its modules are kept.
struct SchemaRetention {
  pml::RetentionPolicy schema;
  std::vector<std::pair<std::string, pml::RetentionPolicy>> modules;  // by path, the root text's ("#root") too
};

// What a schema is made of again after a restart.
struct StoredSchema {
  std::string name;
  std::string source;  // the PML as registered
  SchemaRetention retention;
};

// The registry makes one call at a time, and never on the engine thread: calls may take as long as a disk takes.
class SchemaJournal {
 public:
  virtual ~SchemaJournal() = default;
  // In the place of what is there under the schema's name. Once it returns, the schema outlives a power cut. Error
  // kStorageFailed: what was there before still is.
  virtual Status save(const StoredSchema& schema) = 0;
  virtual Status remove(std::string_view name) = 0;  // success also when nothing is there
};

}  // namespace promptcached::engine
