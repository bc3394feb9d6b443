#include "core/kv/tiers/remote_store.h"

#include <algorithm>
#include <cassert>
#include <string_view>

#include "core/kv/tiers/remote/remote.h"

namespace promptcached::kv {
namespace {

// A message of the library as text; gives its memory back.
std::string take_text(PcRemoteBytes bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  pc_remote_bytes_free(bytes);
  return text;
}

Error remote_error(PcRemoteStatus status, PcRemoteBytes message) {
  switch (status) {
    case kPcRemoteBadUri:
      return make_error(ErrorCode::kInvalidField, take_text(message));
    case kPcRemoteTimeout:
      return make_error(ErrorCode::kTimeout, take_text(message));
    default:
      return make_error(ErrorCode::kInternal, take_text(message));
  }
}

// What every kind of store takes as a name as it stands.
[[maybe_unused]] bool is_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.find_first_not_of(kLetters) == std::string_view::npos && name.front() != '.';
}

}  // namespace

void RemoteValue::Free::operator()(std::byte* data) const { pc_remote_bytes_free({data, size}); }

void RemoteStore::Close::operator()(PcRemoteStore* store) const { pc_remote_free(store); }

Result<std::unique_ptr<RemoteStore>> RemoteStore::open(const Options& options) {
  assert(options.timeout.count() > 0 && options.max_concurrent > 0);
  PcRemoteStore* store = nullptr;
  PcRemoteBytes message = {};
  const PcRemoteStatus status =
      pc_remote_open(options.uri.data(), options.uri.size(), static_cast<std::uint64_t>(options.timeout.count()),
                     static_cast<std::uint32_t>(options.max_concurrent), &store, &message);
  if (status != kPcRemoteOk) {
    return remote_error(status, message);
  }
  return std::unique_ptr<RemoteStore>(new RemoteStore(store));
}

Result<std::optional<RemoteValue>> RemoteStore::read(const std::string& name) {
  assert(is_name(name));
  PcRemoteBytes value = {};
  PcRemoteBytes message = {};
  const PcRemoteStatus status = pc_remote_read(store_.get(), name.data(), name.size(), &value, &message);
  if (status == kPcRemoteAbsent) {
    return std::optional<RemoteValue>();
  }
  if (status != kPcRemoteOk) {
    return remote_error(status, message);
  }
  return std::optional<RemoteValue>(RemoteValue(value.data, value.size));
}

Status RemoteStore::write(const std::string& name, std::span<const std::byte> value) {
  assert(is_name(name));
  PcRemoteBytes message = {};
  const PcRemoteStatus status =
      pc_remote_write(store_.get(), name.data(), name.size(), value.data(), value.size(), &message);
  return status == kPcRemoteOk ? Status() : Status(remote_error(status, message));
}

Status RemoteStore::remove(const std::string& name) {
  assert(is_name(name));
  PcRemoteBytes message = {};
  const PcRemoteStatus status = pc_remote_remove(store_.get(), name.data(), name.size(), &message);
  return status == kPcRemoteOk ? Status() : Status(remote_error(status, message));
}

std::string RemoteStore::describe() const { return take_text(pc_remote_describe(store_.get())); }

}  // namespace promptcached::kv
