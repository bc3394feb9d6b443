#include "core/kv/module_key.h"

#include <charconv>

#include "core/base/sha256.h"

namespace promptcached::kv {

std::string ModuleKey::hex() const { return to_hex(bytes); }

std::optional<ModuleKey> ModuleKey::from_hex(std::string_view digits) {
  ModuleKey key;
  if (digits.size() != key.bytes.size() * 2) {
    return std::nullopt;
  }
  for (std::uint8_t& byte : key.bytes) {
    const auto parsed = std::from_chars(digits.data(), digits.data() + 2, byte, 16);
    if (parsed.ptr != digits.data() + 2) {
      return std::nullopt;
    }
    digits.remove_prefix(2);
  }
  return key;
}

}  // namespace promptcached::kv
