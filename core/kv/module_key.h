// ModuleKey: the identity of a module's attention states, or of a prefix block's.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace promptcached::kv {

// SHA-256 over tagged, length-prefixed fields: model fingerprint, KV dtype, tenant scope, encoding context (tokens and
// positions), own tokens and positions. Never names: changed text under an old name cannot meet old KV. Computed by
// engine/module_keys.cpp and engine/prefix_cache.cpp, since only the engine knows both the model and the schema.
struct ModuleKey {
  std::array<std::uint8_t, 32> bytes{};
  friend bool operator==(const ModuleKey&, const ModuleKey&) = default;
  std::string hex() const;
  static std::optional<ModuleKey> from_hex(std::string_view digits);  // nullopt when they are no key's

  // A block of a sequence's own KV is no schema's. Its key says so by its last eight bytes, so that every tier and
  // every later process can tell; 24 bytes of digest are left.
  static ModuleKey of_prefix(const std::array<std::uint8_t, 32>& digest);
  bool is_prefix() const;
};

struct ModuleKeyHash {
  std::size_t operator()(const ModuleKey& key) const noexcept {
    std::size_t hash = 0;  // the digest is uniform already
    std::memcpy(&hash, key.bytes.data(), sizeof hash);
    return hash;
  }
};

}  // namespace promptcached::kv
