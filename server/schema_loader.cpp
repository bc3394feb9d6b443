#include "server/schema_loader.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/base/log.h"

namespace promptcached::server {
namespace {

Error unreadable(const std::filesystem::path& path, const std::string& reason) {
  return make_error(ErrorCode::kInvalidField, "cannot read schemas from " + path.string() + ": " + reason);
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

Status register_schemas(const std::vector<SchemaFile>& files, engine::SchemaRegistry& registry,
                        const std::function<void(std::size_t)>& done) {
  std::size_t ready = 0;
  for (const SchemaFile& file : files) {
    const Result<engine::RegisterOutcome> outcome = registry.register_schema(file.source, {});
    if (!outcome) {
      Error error = outcome.error();
      std::string place = file.path.string();
      if (error.location) {
        place += ":" + std::to_string(error.location->line) + ":" + std::to_string(error.location->column);
      }
      error.message = place + ": " + error.message;
      return error;
    }
    const pml::Schema& schema = *outcome->status.version->schema;
    log::info("schema {}: {} tokens encoded in {:.0f} ms ({})", schema.name, schema.token_count,
              outcome->status.encode_ms, file.path.filename().string());
    done(++ready);
  }
  return {};
}

}  // namespace promptcached::server
