#include "core/base/utf8.h"

#include <string>
#include <string_view>

#include "tests/catch.h"

namespace promptcached {
namespace {

std::string encode(unsigned code_point) {
  std::string text;
  const auto add = [&text](unsigned byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
    add(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    add(0xE0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  } else {
    add(0xF0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3F));
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  }
  return text;
}

TEST_CASE("every code point is valid but for the surrogates", "[base]") {
  int wrong = 0;
  for (unsigned code_point = 0; code_point <= 0x10FFFF + 0x1000; ++code_point) {
    const std::string text = encode(code_point);
    const bool valid = (code_point < 0xD800 || code_point > 0xDFFF) && code_point <= 0x10FFFF;
    wrong += utf8_character_length(text) == (valid ? text.size() : 0) ? 0 : 1;
    // A character that is cut is none.
    for (std::size_t length = 0; length < text.size(); ++length) {
      wrong += utf8_character_length(std::string_view(text).substr(0, length)) == 0 ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("no sequence of up to three bytes is valid unless it encodes a code point", "[base]") {
  int wrong = 0;
  for (unsigned bytes = 0; bytes < 1U << 24; bytes += 1 + (bytes % 3)) {  // two of three
    const char text[] = {static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8), static_cast<char>(bytes)};
    const std::size_t length = utf8_character_length({text, 3});
    if (length == 3) {
      const unsigned code_point = (bytes >> 16 & 0x0F) << 12 | (bytes >> 8 & 0x3F) << 6 | (bytes & 0x3F);
      wrong += encode(code_point) == std::string_view(text, 3) && (code_point < 0xD800 || code_point > 0xDFFF) ? 0 : 1;
    } else if (length == 2) {
      const unsigned code_point = (bytes >> 16 & 0x1F) << 6 | (bytes >> 8 & 0x3F);
      wrong += encode(code_point) == std::string_view(text, 2) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("ill-formed text is found where it begins", "[base]") {
  struct Case {
    std::string_view text;
    std::size_t offset;
  };
  const Case cases[] = {
      {"\x80", 0},              // continuation without a lead
      {"ab\xC0\x80", 2},        // overlong NUL
      {"\xC1\xBF", 0},          // overlong two bytes
      {"a\xE0\x9F\xBF", 1},     // overlong three bytes
      {"\xF0\x8F\xBF\xBF", 0},  // overlong four bytes
      {"\xED\xA0\x80", 0},      // the first surrogate
      {"\xED\xBF\xBF", 0},      // the last surrogate
      {"\xF4\x90\x80\x80", 0},  // U+110000
      {"\xF5\x80\x80\x80", 0},  // no lead byte
      {"\xFF", 0},
      {"\xC3\xA9\xE2\x82", 2},      // cut at the end
      {"\xE2\x82z", 0},             // cut in the middle
      {"\xF0\x9F\x98\x80\xFE", 4},  // after an emoji
  };
  for (const Case& c : cases) {
    INFO("at " << c.offset << " of " << c.text.size());
    REQUIRE(find_invalid_utf8(c.text).has_value());
    CHECK(*find_invalid_utf8(c.text) == c.offset);
    CHECK_FALSE(is_valid_utf8(c.text));
    CHECK(is_valid_utf8(replace_invalid_utf8(c.text)));
  }
  CHECK(is_valid_utf8(""));
  CHECK(is_valid_utf8(std::string_view("a\0b", 3)));
  CHECK(is_valid_utf8("é€😀한국어"));
}

TEST_CASE("repair replaces bytes and keeps the rest", "[base]") {
  CHECK(replace_invalid_utf8("a\xFFz\xC3") == "a\xEF\xBF\xBDz\xEF\xBF\xBD");
  CHECK(replace_invalid_utf8("é😀") == "é😀");
}

}  // namespace
}  // namespace promptcached
