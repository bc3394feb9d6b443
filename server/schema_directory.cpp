#include "server/schema_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/log.h"
#include "core/base/sha256.h"
#include "server/schema_document.h"

namespace promptcached::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".schema";
constexpr std::string_view kUnfinished = ".unfinished";
constexpr std::string_view kDamaged = ".damaged";

std::string reason_of(int error) { return std::generic_category().message(error); }

// errno of the first step that failed, or 0.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return 0;
}

int flush_directory(const fs::path& directory) {
  const FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd && ::fsync(fd.get()) == 0 ? 0 : errno;
}

int write_unfinished(const fs::path& path, std::string_view text) {
  const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) {
    return errno;
  }
  if (const int error = write_all(fd.get(), text); error != 0) {
    return error;
  }
  return ::fsync(fd.get()) == 0 ? 0 : errno;
}

int replace_file(const fs::path& path, std::string_view text) {
  fs::path unfinished = path;
  unfinished += kUnfinished;
  int error = write_unfinished(unfinished, text);
  if (error == 0 && ::rename(unfinished.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(unfinished.c_str());
    return error;
  }
  return flush_directory(path.parent_path());
}

// Nullopt with errno set when it cannot be read.
std::optional<std::string> read_file(const fs::path& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return std::nullopt;
  }
  std::string text;
  std::array<char, 1 << 16> chunk{};
  for (;;) {
    const ssize_t size = ::read(fd.get(), chunk.data(), chunk.size());
    if (size == 0) {
      return text;
    }
    if (size < 0 && errno != EINTR) {
      return std::nullopt;
    }
    text.append(chunk.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  }
}

// A schema's name is safe in a file's name ([A-Za-z_][A-Za-z0-9_.-]*), but may be too long for one.
std::string file_name(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  if (name.size() <= kLongest) {
    return std::string(name).append(kExtension);
  }
  const std::string hash = to_hex(Sha256().update_field("name", name).digest());
  return std::string(name.substr(0, kLongest - 65)).append("~").append(hash).append(kExtension);  // no name has a '~'
}

Result<FileDescriptor> take_lock(const fs::path& data_dir) {
  FileDescriptor lock = lock_file(data_dir / "lock", 0600);
  if (!lock) {
    const bool taken = errno == EWOULDBLOCK;
    return make_error(ErrorCode::kStorageFailed,
                      taken ? "the data directory " + data_dir.string() +
                                  " is in use by another promptcached process; give each its own --data-dir"
                            : "cannot write to the data directory " + data_dir.string() + ": " + reason_of(errno));
  }
  return lock;
}

void set_aside(const fs::path& path, const std::string& reason) {
  fs::path aside = path;
  aside += kDamaged;
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    log::error("the schema in {} is not restored ({}), nor can it be set aside: {}", path.string(), reason,
               reason_of(errno));
    return;
  }
  log::error("the schema in {} is not restored: {}; set aside as {}", path.string(), reason, aside.filename().string());
}

std::optional<engine::StoredSchema> load_file(const fs::path& path) {
  const std::optional<std::string> text = read_file(path);
  if (!text) {
    log::error("the schema in {} is not restored: cannot read it: {}", path.string(), reason_of(errno));
    return std::nullopt;
  }
  Result<engine::StoredSchema> schema = read_schema_document(*text);
  if (!schema) {
    set_aside(path, schema.error().message);
    return std::nullopt;
  }
  if (file_name(schema->name) != path.filename()) {  // it would be another's file to replace and remove
    set_aside(path, "it holds the schema '" + schema->name + "', whose file has another name");
    return std::nullopt;
  }
  return std::move(*schema);
}

}  // namespace

Result<std::unique_ptr<SchemaDirectory>> SchemaDirectory::open(const fs::path& data_dir) {
  const fs::path schemas = data_dir / "schemas";
  std::error_code error;
  fs::create_directories(schemas, error);
  if (error) {
    return make_error(ErrorCode::kStorageFailed,
                      "cannot make the data directory " + schemas.string() + ": " + error.message());
  }
  Result<FileDescriptor> lock = take_lock(data_dir);
  if (!lock) {
    return lock.error();
  }
  if (::access(schemas.c_str(), R_OK | W_OK | X_OK) != 0) {
    return make_error(ErrorCode::kStorageFailed,
                      "cannot write to the data directory " + schemas.string() + ": " + reason_of(errno));
  }
  return std::unique_ptr<SchemaDirectory>(new SchemaDirectory(schemas, std::move(*lock)));
}

std::vector<engine::StoredSchema> SchemaDirectory::load() {
  std::vector<engine::StoredSchema> schemas;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(schemas_, error)) {
    if (entry.path().extension() == kUnfinished) {
      ::unlink(entry.path().c_str());  // the process ended while it wrote it
    } else if (entry.path().extension() == kExtension) {
      if (std::optional<engine::StoredSchema> schema = load_file(entry.path())) {
        schemas.push_back(std::move(*schema));
      }
    }
  }
  if (error) {
    log::error("cannot list {}: {}", schemas_.string(), error.message());
  }
  std::sort(schemas.begin(), schemas.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return schemas;
}

fs::path SchemaDirectory::path_of(std::string_view name) const { return schemas_ / file_name(name); }

Status SchemaDirectory::save(const engine::StoredSchema& schema) {
  const fs::path path = path_of(schema.name);
  const std::string text = schema_document(schema);
  if (read_file(path) == text) {
    return {};
  }
  if (const int error = replace_file(path, text); error != 0) {
    log::error("cannot write {}: {}", path.string(), reason_of(error));
    return make_error(ErrorCode::kStorageFailed, "the server could not save schema '" + schema.name +
                                                     "' in its data directory (" + reason_of(error) +
                                                     "), so nothing has changed; mend that and send it again");
  }
  return {};
}

Status SchemaDirectory::remove(std::string_view name) {
  const fs::path path = path_of(name);
  int error = ::unlink(path.c_str()) == 0 ? flush_directory(schemas_) : errno;
  if (error == 0 || error == ENOENT) {
    return {};
  }
  log::error("cannot remove {}: {}", path.string(), reason_of(error));
  return make_error(ErrorCode::kStorageFailed, "the server could not remove schema '" + std::string(name) +
                                                   "' from its data directory (" + reason_of(error) +
                                                   "), so it is still registered; mend that and try again");
}

}  // namespace promptcached::server
