#include "core/pml/characters.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "core/base/utf8.h"

namespace promptcached::pml {
namespace {

constexpr std::string_view kEscapeHint =
    "a bare '&' is not allowed: write &amp;, or put the text into <![CDATA[ ... ]]>";

// The Char production of XML 1.0.
bool is_xml_character(std::uint32_t code) {
  if (code < 0x20) {
    return code == '\t' || code == '\n' || code == '\r';
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return !surrogate && code != 0xFFFE && code != 0xFFFF && code <= 0x10FFFF;
}

std::string code_point_name(std::uint32_t code) {
  std::array<char, 16> name{};
  std::snprintf(name.data(), name.size(), "U+%04X", code);
  return name.data();
}

std::uint32_t decode(std::string_view character) {
  constexpr std::array<unsigned char, 5> kLeadMask = {0, 0x7F, 0x1F, 0x0F, 0x07};
  std::uint32_t code = static_cast<unsigned char>(character[0]) & kLeadMask[character.size()];
  for (const char c : character.substr(1)) {
    code = (code << 6) | (static_cast<unsigned char>(c) & 0x3F);
  }
  return code;
}

Reference refused(std::string reason) { return {0, std::move(reason)}; }

// "&#65;" or "&#x41;": `digits` is what stands between "&#" and ";".
Reference read_character_reference(std::string_view text, std::string_view digits) {
  const bool hexadecimal = !digits.empty() && digits[0] == 'x';
  if (hexadecimal) {
    digits.remove_prefix(1);
  }
  const std::uint32_t base = hexadecimal ? 16 : 10;
  std::uint32_t code = 0;
  bool well_formed = !digits.empty();
  for (const char c : digits) {
    const char lower = static_cast<char>(c | 0x20);
    const bool letter = lower >= 'a' && lower <= 'f';
    const bool is_digit = (c >= '0' && c <= '9') || (hexadecimal && letter);
    if (!is_digit) {
      well_formed = false;
      break;
    }
    const auto digit = static_cast<std::uint32_t>(letter ? lower - 'a' + 10 : c - '0');
    code = std::min<std::uint32_t>(code * base + digit, 0x110000);  // clamped: many digits must not wrap around
  }
  if (!well_formed) {
    return refused("malformed character reference: write &#65; or &#x41;, or &amp; for a plain '&'");
  }
  if (!is_xml_character(code)) {
    return refused("the character reference " + std::string(text) + " names a character that XML does not allow");
  }
  return {text.size(), {}};
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':' || (static_cast<unsigned char>(c) & 0x80) != 0;
}

}  // namespace

std::optional<CharacterFault> find_illegal_character(std::string_view source) {
  std::size_t offset = 0;
  while (offset < source.size()) {
    if (static_cast<unsigned char>(source[offset] - 0x20) < 0x60) {  // printable ASCII: nearly all there is
      ++offset;
      continue;
    }
    const std::size_t length = utf8_character_length(source.substr(offset));
    if (length == 0) {
      return CharacterFault{offset, "invalid UTF-8"};
    }
    const std::uint32_t code = decode(source.substr(offset, length));
    if (!is_xml_character(code)) {
      return CharacterFault{offset, "the character " + code_point_name(code) + " is not allowed"};
    }
    offset += length;
  }
  return std::nullopt;
}

Reference read_reference(std::string_view text) {
  constexpr std::array<std::string_view, 5> kDeclared = {"lt", "gt", "amp", "quot", "apos"};
  constexpr std::size_t kLongest = 64;  // an '&' with no ';' near it is a bare one
  const std::size_t end = text.substr(0, kLongest).find(';');
  if (end == std::string_view::npos || end == 1) {
    return refused(std::string(kEscapeHint));
  }
  const std::string_view name = text.substr(1, end - 1);
  if (name[0] == '#') {
    return read_character_reference(text.substr(0, end + 1), name.substr(1));
  }
  if (!std::ranges::all_of(name, is_name_character)) {
    return refused(std::string(kEscapeHint));
  }
  if (std::ranges::find(kDeclared, name) == kDeclared.end()) {
    return refused("the entity &" + std::string(name) +
                   "; is not declared: PML knows &lt; &gt; &amp; &quot; &apos; and &#...; for a plain '&' write &amp;");
  }
  return {end + 1, {}};
}

}  // namespace promptcached::pml
