#include "core/tokenizer/utf8_assembler.h"

#include <vector>

#include "core/base/utf8.h"
#include "tests/catch.h"
#include "tests/unit/tokenizer/support.h"

namespace promptcached::testing {

TEST_CASE("a character is given out once it is whole") {
  Utf8Assembler assembler;
  CHECK(assembler.push("a\xF0\x9F") == "a");
  CHECK(assembler.pending());
  CHECK(assembler.push("\x99").empty());
  CHECK(assembler.push("\x82z") == "\U0001F642z");
  CHECK_FALSE(assembler.pending());
  CHECK(assembler.finish().empty());
}

TEST_CASE("bytes are held only while they may become a character") {
  struct Case {
    std::string bytes;
    std::string at_once;
    bool held;
  };
  // Expected texts are those of Python's bytes.decode("utf-8", "replace").
  const std::vector<Case> cases = {
      {"\x80", "\uFFFD", false},                      // a stray continuation byte
      {"\xFF", "\uFFFD", false},                      // no character starts with it
      {"\xC0\x80", "\uFFFD\uFFFD", false},            // overlong
      {"\xC1", "\uFFFD", false},                      //
      {"\xC3", "", true},                             //
      {"\xC3(", "\uFFFD(", false},                    //
      {"\xE0\x80", "\uFFFD\uFFFD", false},            // overlong, known at the second byte
      {"\xE0\xA0", "", true},                         //
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", false},  // a surrogate
      {"\xED\x9F", "", true},                         //
      {"\xF0\x8F", "\uFFFD\uFFFD", false},            // overlong
      {"\xF0\x9F\x99", "", true},                     //
      {"\xF0\x9F\x99z", "\uFFFDz", false},            // three bytes of one character: one U+FFFD
      {"\xF4\x90", "\uFFFD\uFFFD", false},            // past U+10FFFF
      {"\xF4\x8F\xBF", "", true},                     //
      {"\xF5\x80", "\uFFFD\uFFFD", false},            //
      {"\uFFFD", "\uFFFD", false},                    // U+FFFD itself is a character like any other
      {"\xE2\x82\xE2\x82\xAC", "\uFFFD\u20AC", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes);
    Utf8Assembler assembler;
    CHECK(assembler.push(c.bytes) == c.at_once);
    CHECK(assembler.pending() == c.held);
    CHECK(assembler.finish() == (c.held ? "\uFFFD" : ""));
    CHECK_FALSE(assembler.pending());
    CHECK(to_valid_utf8(c.bytes) == c.at_once + (c.held ? "\uFFFD" : ""));
  }
}

TEST_CASE("however bytes are cut, the same text comes out") {
  Random random(7);
  const std::string_view parts[] = {"a",    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82",
                                    "\x80", "\xF0\x9F", "\xED\xA0"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) {
      bytes += random.below(4) == 0 ? std::string(1, static_cast<char>(random.below(256)))
                                    : std::string(parts[random.below(std::size(parts))]);
    }
    Utf8Assembler assembler;
    std::string text;
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::string_view piece = rest.substr(0, 1 + random.below(4));
      const std::string delta = assembler.push(piece);
      REQUIRE(is_valid_utf8(delta));
      text += delta;
      rest.remove_prefix(piece.size());
    }
    text += assembler.finish();
    REQUIRE(text == to_valid_utf8(bytes));
    REQUIRE(is_valid_utf8(text));
  }
}

}  // namespace promptcached::testing
