// Schemas registered at start: those of the operator's files, and those that come back from the data directory.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/engine/schema_registry.h"

namespace promptcached::server {

struct SchemaFile {
  std::filesystem::path path;
  std::string source;
};

// The .xml and .pml files of `directory`, by name, not of its subdirectories. Error kInvalidField: the directory or a
// file cannot be read, or there is none.
Result<std::vector<SchemaFile>> read_schema_files(const std::filesystem::path& directory);

// Registers one after the other, each until it is encoded, and calls `done` with the number ready so far. Stops at the
// first failure, whose message names file, line and column.
Status register_schemas(const std::vector<SchemaFile>& files, engine::SchemaRegistry& registry,
                        const std::function<void(std::size_t)>& done);

// Registers what the data directory has kept, as it was, to be encoded in the background; returns the names. Where one
// of `files` has another text for a name, the file is what counts, and the kept one is left out. One that this model
// cannot take is logged and left where it is.
std::vector<std::string> restore_schemas(const std::vector<engine::StoredSchema>& kept,
                                         const std::vector<SchemaFile>& files, engine::SchemaRegistry& registry);

}  // namespace promptcached::server
