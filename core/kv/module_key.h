// ModuleKey: the identity of a module's attention states.
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
// engine/module_keys.cpp, since only the engine knows both the model and the schema.
struct ModuleKey {
  std::array<std::uint8_t, 32> bytes{};
  friend bool operator==(const ModuleKey&, const ModuleKey&) = default;
  std::string hex() const;
  static std::optional<ModuleKey> from_hex(std::string_view digits);  // nullopt when they are no key's
};

struct ModuleKeyHash {
  std::size_t operator()(const ModuleKey& key) const noexcept {
    std::size_t hash = 0;  // the digest is uniform already
    std::memcpy(&hash, key.bytes.data(), sizeof hash);
    return hash;
  }
};

}  // namespace promptcached::kv
