// Schemas registered at start, from the files of a directory.
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

}  // namespace promptcached::server
