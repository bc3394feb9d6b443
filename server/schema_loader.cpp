#include "server/schema_loader.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "core/base/log.h"

namespace promptcached::server {
namespace {

Error unreadable(const std::filesystem::path& path, const std::string& reason) {
  return make_error(ErrorCode::kInvalidField, "cannot read schemas from " + path.string() + ": " + reason);
}

Error placed(Error error, const SchemaFile& file) {
  std::string place = file.path.string();
  if (error.location) {
    place += ":" + std::to_string(error.location->line) + ":" + std::to_string(error.location->column);
  }
  error.message = place + ": " + error.message;
  return error;
}

}  // namespace

Result<std::vector<SchemaFile>> read_schema_files(const std::filesystem::path& directory) {
  std::vector<SchemaFile> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const auto extension = entry.path().extension();
    if (entry.is_regular_file() && (extension == ".xml" || extension == ".pml")) {
      files.push_back({entry.path(), {}});
    }
  }
  if (error) {
    return unreadable(directory, error.message());
  }
  if (files.empty()) {
    return unreadable(directory, "there is no .xml or .pml file in it");
  }
  std::sort(files.begin(), files.end(), [](const SchemaFile& a, const SchemaFile& b) { return a.path < b.path; });
  for (SchemaFile& file : files) {
    std::ifstream in(file.path, std::ios::binary);
    file.source.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!in.good() && !in.eof()) {
      return unreadable(file.path, "not readable");
    }
  }
  return files;
}

// All at once: those whose modules lie in a lower tier are ready before the others are encoded.
Status register_schemas(const std::vector<SchemaFile>& files, engine::SchemaRegistry& registry,
                        const std::function<void(std::size_t)>& done) {
  std::vector<std::string> names;
  for (const SchemaFile& file : files) {
    engine::RegisterOptions options;
    options.wait = false;
    const Result<engine::RegisterOutcome> outcome = registry.register_schema(file.source, options);
    if (!outcome) {
      return placed(outcome.error(), file);
    }
    names.push_back(outcome->status.version->schema->name);
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    registry.wait_until_encoded(names[i]);
    const Result<engine::SchemaStatus> status = registry.status(names[i]);
    if (status.ok() && status->failure.has_value()) {
      return placed(*status->failure, files[i]);
    }
    if (status.ok()) {  // else somebody has deleted it
      log::info("schema {}: {} tokens ready after {:.0f} ms ({})", names[i], status->version->schema->token_count,
                status->encode_ms, files[i].path.filename().string());
    }
    done(i + 1);
  }
  return {};
}

std::vector<std::string> restore_schemas(const std::vector<engine::StoredSchema>& kept,
                                         const std::vector<SchemaFile>& files, engine::SchemaRegistry& registry) {
  if (kept.empty()) {
    return {};  // then no file needs to be compiled for its name
  }
  std::map<std::string, std::string_view> sources;  // of the files, by name of their schema
  for (const SchemaFile& file : files) {
    // A file that is no schema ends the start later, with its place.
    if (const Result<engine::SchemaStatus> status = registry.dry_run(file.source); status.ok()) {
      sources.emplace(status->version->schema->name, file.source);
    }
  }
  std::vector<std::string> names;
  for (const engine::StoredSchema& schema : kept) {
    if (const auto file = sources.find(schema.name); file != sources.end() && file->second != schema.source) {
      log::info("schema {}: the file of --schemas replaces what the data directory has kept", schema.name);
      continue;
    }
    engine::RegisterOptions options;
    options.required_name = schema.name;
    options.retention = schema.retention;
    options.wait = false;
    if (const auto outcome = registry.register_schema(schema.source, options); outcome.ok()) {
      names.push_back(schema.name);
    } else {
      log::error("schema {}: kept in the data directory, but cannot be registered: {}", schema.name,
                 outcome.error().message);
    }
  }
  return names;
}

}  // namespace promptcached::server
