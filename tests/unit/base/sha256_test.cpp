#include "core/base/sha256.h"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"

namespace promptcached {
namespace {

std::string hex_of(const Sha256& hash) { return to_hex(hash.digest()); }

TEST_CASE("the digest is SHA-256 of the fields as documented", "[base]") {
  // sha256 of nothing.
  CHECK(hex_of(Sha256()) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  // sha256 of: 02 00 00 00 00 00 00 00 'ab' 't' 03 00 00 00 00 00 00 00 'xyz', computed by another implementation.
  CHECK(hex_of(Sha256().update_field("ab", "xyz")) ==
        "29c8bb9e6375724db93050f5c722c61efb0fafe40d822797f453ed07e490d414");
  // The same for tag "n" and the list -1, 258.
  CHECK(hex_of(Sha256().update_field("n", std::vector<std::int32_t>{-1, 258})) ==
        "75ce146de7c95e0d4b7f8912dfea9bd5b94499ad0f55d2c86b2ddcd58edbcbae");
}

TEST_CASE("different lists of fields have different digests", "[base]") {
  const std::vector<std::int32_t> one_two = {1, 2};
  const std::vector<std::int32_t> one = {1};
  const std::vector<std::int32_t> two = {2};
  const std::vector<std::int32_t> none;
  const std::array<std::byte, 1> letter = {std::byte{'a'}};
  const std::set<std::string> digests = {
      hex_of(Sha256()),
      hex_of(Sha256().update_field("ab", "c")),
      hex_of(Sha256().update_field("a", "bc")),
      hex_of(Sha256().update_field("", "abc")),
      hex_of(Sha256().update_field("a", "b").update_field("c", "")),
      hex_of(Sha256().update_field("tenant", "k")),
      hex_of(Sha256().update_field("salt", "k")),
      hex_of(Sha256().update_field("x", one_two)),
      hex_of(Sha256().update_field("x", one).update_field("x", two)),
      hex_of(Sha256().update_field("x", none)),
      hex_of(Sha256().update_field("x", "")),
      hex_of(Sha256().update_field("x", 1)),
      hex_of(Sha256().update_field("x", one)),
      hex_of(Sha256().update_field("x", "a")),
      hex_of(Sha256().update_field("x", letter)),
  };
  CHECK(digests.size() == 15);
}

TEST_CASE("a number is the same in whatever type it was held", "[base]") {
  CHECK(hex_of(Sha256().update_field("x", std::int32_t{-7})) == hex_of(Sha256().update_field("x", std::int64_t{-7})));
  const std::vector<std::int32_t> narrow = {-7, 1 << 30};
  const std::vector<std::int64_t> wide = {-7, 1 << 30};
  CHECK(hex_of(Sha256().update_field("x", narrow)) == hex_of(Sha256().update_field("x", wide)));
}

TEST_CASE("taking a digest does not end the hash", "[base]") {
  Sha256 hash;
  hash.update_field("a", "b");
  const auto first = hash.digest();
  CHECK(hash.digest() == first);
  hash.update_field("c", "d");
  CHECK(hash.digest() == Sha256().update_field("a", "b").update_field("c", "d").digest());
  Sha256 moved = std::move(hash);
  CHECK(moved.digest() != first);
}

TEST_CASE("hexadecimal has two digits a byte", "[base]") {
  const std::array<std::uint8_t, 4> bytes = {0x00, 0x0F, 0xA0, 0xFF};
  CHECK(to_hex(bytes) == "000fa0ff");
  CHECK(to_hex({}).empty());
}

}  // namespace
}  // namespace promptcached
