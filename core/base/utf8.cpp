#include "core/base/utf8.h"

namespace promptcached {
namespace {

struct LeadByte {
  std::size_t length = 0;
  // The second byte's range: where overlong forms, surrogates and code points past U+10FFFF are excluded.
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

// Table 3-7 of the Unicode standard, well-formed UTF-8 byte sequences.
LeadByte classify(unsigned char lead) {
  if (lead < 0x80) {
    return {1};
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return {2};
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0};
}

}  // namespace

std::size_t utf8_character_length(std::string_view text) {
  if (text.empty()) {
    return 0;
  }
  const LeadByte lead = classify(static_cast<unsigned char>(text[0]));
  if (lead.length == 0 || lead.length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < lead.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char min = i == 1 ? lead.second_min : 0x80;
    const unsigned char max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) {
      return 0;
    }
  }
  return lead.length;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t offset = 0;
  while (offset < text.size()) {
    const std::size_t length = utf8_character_length(text.substr(offset));
    if (length == 0) {
      return offset;
    }
    offset += length;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_character_length(text);
    if (length == 0) {
      repaired += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      repaired += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return repaired;
}

}  // namespace promptcached
