#include "core/kv/tiers/disk_tier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/base/log.h"

namespace promptcached::kv {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".kv";
constexpr const char* kTemporarySuffix = ".tmp";
// Planes that are read one after another into memory of our own come in pieces of about this size.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::string what_failed(const char* action, const fs::path& path) {
  return std::string(action) + " " + path.string() + ": " + std::strerror(errno);
}

enum class ReadResult { kAll, kShort, kFailed };

ReadResult read_all(int file, std::byte* data, std::size_t bytes, std::uint64_t offset) {
  while (bytes > 0) {
    const ssize_t count = pread(file, data, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return ReadResult::kFailed;
    }
    if (count == 0) {
      return ReadResult::kShort;
    }
    data += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
  return ReadResult::kAll;
}

bool write_all(int file, std::span<const std::byte> data, std::uint64_t offset) {
  while (!data.empty()) {
    const ssize_t count = pwrite(file, data.data(), data.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    data = data.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

// The header of an open record, and how long the file is.
struct Opened {
  HeaderOrFault head;
  bool failed = false;  // the disk could not be read
};

Opened read_header(int file, const RecordIdentity& identity) {
  Opened opened;
  std::vector<std::byte> bytes(record_header_bytes(identity.geometry.planes()));
  struct stat status{};
  if (fstat(file, &status) != 0) {
    opened.failed = true;
    return opened;
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  bytes.resize(std::min<std::uint64_t>(bytes.size(), size));
  if (read_all(file, bytes.data(), bytes.size(), 0) == ReadResult::kFailed) {
    opened.failed = true;
    return opened;
  }
  opened.head = read_record_header(bytes, identity);
  if (opened.head.header.has_value() &&
      size != record_header_bytes(identity.geometry.planes()) + opened.head.header->payload_bytes()) {
    opened.head = {std::nullopt, RecordFault::kTruncated};
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::open(const Options& options) {
  std::error_code error;
  fs::create_directories(options.directory / "modules", error);
  if (error) {
    return make_error(ErrorCode::kInternal, "--kv-disk-path: cannot make " + options.directory.string() + ": " +
                                                error.message() + "; name a directory that can be written");
  }
  const fs::path lock_path = options.directory / "lock";
  FileDescriptor lock = lock_file(lock_path, 0644);
  if (!lock && errno == EWOULDBLOCK) {
    return make_error(ErrorCode::kInternal, "--kv-disk-path: another process uses " + options.directory.string() +
                                                "; give each server a directory of its own");
  }
  if (!lock) {
    return make_error(ErrorCode::kInternal, "--kv-disk-path: " + what_failed("cannot write", lock_path) +
                                                "; name a directory that can be written");
  }
  std::unique_ptr<DiskTier> tier(new DiskTier(options, std::move(lock)));
  tier->scan();
  return tier;
}

DiskTier::DiskTier(const Options& options, FileDescriptor lock)
    : IndexedTier(options.capacity_bytes, options.eviction),
      options_(options),
      modules_(options.directory / "modules"),
      lock_(std::move(lock)) {}

fs::path DiskTier::path_of(const ModuleKey& key) const { return modules_ / (key.hex() + kSuffix); }

void DiskTier::report(const std::function<void()>& callback) const {
  if (callback) {
    callback();
  }
}

void DiskTier::scan() {
  const auto began = std::chrono::steady_clock::now();
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(modules_, error), end; it != end; it.increment(error)) {
    files.push_back(it->path());
  }
  if (error) {
    log::warn("KV on disk: cannot list {}: {}", modules_.string(), error.message());
    report(options_.on_error);
  }
  for (const fs::path& file : files) {
    scan_file(file);
  }
  while (index_.used_bytes() > options_.capacity_bytes) {  // the budget was larger once
    auto* const entry = index_.next_to_go();
    if (entry == nullptr) {
      break;
    }
    discard(entry->key);
    report(options_.on_evict);
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  log::info("KV on disk: {} modules, {} MiB, found in {:.2f} s in {}", index_.stats(0).entries,
            index_.used_bytes() >> 20U, took, options_.directory.string());
}

void DiskTier::scan_file(const fs::path& path) {
  std::error_code ignored;
  if (path.extension() == kTemporarySuffix) {  // its writer died
    fs::remove(path, ignored);
    return;
  }
  const std::optional<ModuleKey> key =
      path.extension() == kSuffix ? ModuleKey::from_hex(path.stem().string()) : std::nullopt;
  if (!key.has_value()) {
    return;  // not ours
  }
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Opened opened = file ? read_header(file.get(), options_.identity) : Opened{{}, true};
  if (opened.failed) {
    log::warn("KV on disk: {}", what_failed("cannot read", path));
    report(options_.on_error);
    return;
  }
  const bool is_named_right = opened.head.header.has_value() && opened.head.header->key == *key;
  if (!is_named_right) {
    const RecordFault fault = opened.head.header.has_value() ? RecordFault::kKey : opened.head.fault;
    log::warn("KV on disk: {} is {}; removed", path.string(), to_string(fault));
    report(options_.on_corrupt);
    fs::remove(path, ignored);
    return;
  }
  RecordHeader header = *opened.head.header;
  struct stat status{};
  if (fstat(file.get(), &status) == 0) {  // touch() sets it
    header.last_use = std::max(header.last_use, std::chrono::system_clock::from_time_t(status.st_mtime));
  }
  if (header.expired(std::chrono::system_clock::now())) {
    fs::remove(path, ignored);
    return;
  }
  const std::size_t bytes = record_header_bytes(header.identity.geometry.planes()) + header.payload_bytes();
  index_.add(header, bytes, {});
}

LoadOutcome DiskTier::load(DeviceSink& sink) {
  const ModuleKey key = sink.key();
  {
    const std::lock_guard lock(mutex_);
    auto* const entry = index_.find(key);
    if (entry == nullptr || entry->expired(std::chrono::system_clock::now())) {
      return LoadOutcome::kMissing;
    }
    index_.use(*entry, std::chrono::system_clock::now());
    ++entry->hits;
  }
  const fs::path path = path_of(key);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) {  // evicted a moment ago, or removed by somebody
    discard(key);
    return LoadOutcome::kMissing;
  }
  const LoadOutcome outcome = file ? read(file.get(), sink) : LoadOutcome::kFailed;
  if (outcome == LoadOutcome::kFailed) {
    log::warn("KV on disk: {}", what_failed("cannot read", path));
  } else if (outcome == LoadOutcome::kDamaged) {
    log::warn("KV on disk: {} is cut short or damaged; removed", path.string());
    discard(key);
  }
  return outcome;
}

// Into the system's page cache.
void DiskTier::prefetch(const ModuleKey& key) {
  const FileDescriptor file(::open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC));
  if (file) {
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_WILLNEED);
  }
}

LoadOutcome DiskTier::read(int file, DeviceSink& sink) {
  const Opened opened = read_header(file, options_.identity);
  if (opened.failed) {
    return LoadOutcome::kFailed;
  }
  if (!opened.head.header.has_value() || sink.begin(*opened.head.header).has_value()) {
    return LoadOutcome::kDamaged;
  }
  const std::vector<RecordHeader::Plane>& planes = opened.head.header->planes;
  std::vector<std::byte> piece;
  std::uint64_t offset = record_header_bytes(options_.identity.geometry.planes());
  for (std::size_t first = 0; first < planes.size();) {
    // As many planes as make a piece, or one that goes to its place at once.
    std::byte* const direct = sink.direct(static_cast<std::int32_t>(first));
    std::size_t bytes = planes[first].bytes;
    std::size_t end = first + 1;
    while (end < planes.size() && bytes + planes[end].bytes <= kPieceBytes) {
      bytes += planes[end++].bytes;
    }
    piece.resize(direct != nullptr ? 0 : bytes);
    std::byte* const target = direct != nullptr ? direct : piece.data();
    if (const ReadResult result = read_all(file, target, bytes, offset); result != ReadResult::kAll) {
      return result == ReadResult::kShort ? LoadOutcome::kDamaged : LoadOutcome::kFailed;
    }
    const std::byte* at = piece.data();
    for (std::size_t i = first; i < end; ++i) {
      const auto index = static_cast<std::int32_t>(i);
      if ((direct != nullptr ? sink.arrived(index) : sink.put(index, {at, planes[i].bytes})).has_value()) {
        return LoadOutcome::kDamaged;
      }
      at += direct != nullptr ? 0 : planes[i].bytes;
    }
    offset += bytes;
    first = end;
  }
  return LoadOutcome::kLoaded;
}

StoreOutcome DiskTier::store(RecordSource& source) {
  const ModuleKey key = source.header().key;
  const std::size_t most = record_header_bytes(options_.identity.geometry.planes()) + source.max_payload_bytes();
  fs::path temporary;
  {
    const std::lock_guard lock(mutex_);
    if (index_.contains(key)) {
      return StoreOutcome::kStored;
    }
    temporary = modules_ / (key.hex() + "." + std::to_string(++temporary_) + kTemporarySuffix);
  }
  if (!reserve(most)) {
    return StoreOutcome::kNoRoom;
  }
  std::size_t bytes = 0;
  bool written = false;
  {
    const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    written = file && write(file.get(), source, bytes) && fdatasync(file.get()) == 0;
  }
  written = written && rename(temporary.c_str(), path_of(key).c_str()) == 0;
  give_back(most);
  if (!written) {
    log::warn("KV on disk: {}", what_failed("cannot write", temporary));
    unlink(temporary.c_str());
    return StoreOutcome::kFailed;
  }
  const std::lock_guard lock(mutex_);
  if (!index_.contains(key)) {
    index_.add(source.header(), bytes, {});
  }
  return StoreOutcome::kStored;
}

// The header comes last: it holds the checksums of what has been written.
bool DiskTier::write(int file, RecordSource& source, std::size_t& bytes) {
  const std::int32_t planes = options_.identity.geometry.planes();
  bytes = record_header_bytes(planes);
  for (std::int32_t i = 0; i < planes; ++i) {
    const std::span<const std::byte> plane = source.plane(i);
    if (!write_all(file, plane, bytes)) {
      return false;
    }
    bytes += plane.size();
  }
  return write_all(file, write_record_header(source.header()), 0);
}

bool DiskTier::reserve(std::size_t bytes) {
  for (;;) {
    ModuleKey victim;
    {
      const std::lock_guard lock(mutex_);
      const std::size_t used = index_.used_bytes() + writing_bytes_;
      if (used + bytes <= options_.capacity_bytes) {
        writing_bytes_ += bytes;
        return true;
      }
      auto* const entry = index_.next_to_go();
      if (entry == nullptr || used - index_.evictable_bytes() + bytes > options_.capacity_bytes) {
        return false;
      }
      victim = entry->key;
    }
    discard(victim);
    report(options_.on_evict);
  }
}

void DiskTier::give_back(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  writing_bytes_ -= bytes;
}

void DiskTier::discard(ModuleKey key) {
  forget(key);
  unlink(path_of(key).c_str());
}

void DiskTier::remove(const ModuleKey& key) { discard(key); }

void DiskTier::touch(const ModuleKey& key) {
  if (use(key)) {
    utimensat(AT_FDCWD, path_of(key).c_str(), nullptr, 0);  // for the next start
  }
}

}  // namespace promptcached::kv
