// SHA-256 over tagged, length-prefixed fields: the one way promptcached turns content into an identity.
//
// Each field is written as its tag, its kind and its payload, every one with its length in front, so no two different
// lists of fields give the same bytes: ("ab", "c") and ("a", "bc"), or one list split in two, differ. All integers
// are hashed as little-endian 64-bit numbers, so a digest means the same on every machine and whatever C++ type held
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace promptcached {

class Sha256 final {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& update_field(std::string_view tag, std::string_view text);
  Sha256& update_field(std::string_view tag, std::int64_t number);
  Sha256& update_field(std::string_view tag, std::span<const std::byte> bytes);
  Sha256& update_field(std::string_view tag, std::span<const std::int32_t> numbers);
  Sha256& update_field(std::string_view tag, std::span<const std::int64_t> numbers);

  // The digest of the fields so far. More fields may follow; they do not change a digest already taken.
  Digest digest() const;

 private:
  struct Context;
  void begin_field(std::string_view tag, char kind, std::size_t count);
  void update(const void* data, std::size_t size);
  std::unique_ptr<Context> context_;
};

// Lower-case hexadecimal, two digits a byte.
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace promptcached
