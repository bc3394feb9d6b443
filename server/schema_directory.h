// SchemaDirectory: the schemas of --data-dir, one file each, so that they are there again after a restart.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file_descriptor.h"
#include "core/base/status.h"
#include "core/engine/schema_journal.h"

namespace promptcached::server {

// DIR/schemas/NAME.schema (server/schema_document.h). A file is written under another name, flushed to the disk and
// then renamed: whenever the process or the machine dies, it is the old one or the new one, whole.
class SchemaDirectory final : public engine::SchemaJournal {
 public:
  // Makes DIR if it is not there, and locks it as long as this lives. Error kStorageFailed, with the path: another
  // process has it, or nothing can be written there.
  static Result<std::unique_ptr<SchemaDirectory>> open(const std::filesystem::path& data_dir);

  // What was saved, by name. A file that holds no good schema is logged and set aside as NAME.schema.damaged.
  std::vector<engine::StoredSchema> load();

  // Errors tell the client what to do, and the log the path. What is there already is not written again.
  Status save(const engine::StoredSchema& schema) override;
  Status remove(std::string_view name) override;

 private:
  SchemaDirectory(std::filesystem::path schemas, FileDescriptor lock)
      : schemas_(std::move(schemas)), lock_(std::move(lock)) {}
  std::filesystem::path path_of(std::string_view name) const;

  const std::filesystem::path schemas_;
  const FileDescriptor lock_;
};

}  // namespace promptcached::server
