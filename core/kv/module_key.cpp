#include "core/kv/module_key.h"

#include <algorithm>
#include <charconv>

#include "core/base/sha256.h"

namespace promptcached::kv {
namespace {

constexpr std::array<std::uint8_t, 8> kPrefixMark = {'p', 'r', 'e', 'f', 'i', 'x', 0, 1};

}  // namespace

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

ModuleKey ModuleKey::of_prefix(const std::array<std::uint8_t, 32>& digest) {
  ModuleKey key{digest};
  std::copy(kPrefixMark.begin(), kPrefixMark.end(), key.bytes.end() - kPrefixMark.size());
  return key;
}

bool ModuleKey::is_prefix() const {
  return std::equal(kPrefixMark.begin(), kPrefixMark.end(), bytes.end() - kPrefixMark.size());
}

}  // namespace promptcached::kv
