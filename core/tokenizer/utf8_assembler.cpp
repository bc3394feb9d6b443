#include "core/tokenizer/utf8_assembler.h"

#include <cstddef>

#include "core/base/utf8.h"

namespace promptcached {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct ByteRange {
  unsigned char low;
  unsigned char high;
  bool holds(unsigned char byte) const { return low <= byte && byte <= high; }
};

// How many bytes a character that starts with `lead` has; 0 if none does.
std::size_t length_from_lead(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) {
    return 2;
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return 3;
  }
  return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

// The second bytes that `lead` allows: what rules out overlong forms, surrogates and code points past U+10FFFF.
ByteRange second_byte_range(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

// Where no whole character stands at the start of `bytes`: how many bytes are a proper start of one (its "maximal
// subpart"), at least 1; and whether only the end of `bytes` keeps it from going on.
struct BrokenStart {
  std::size_t length;
  bool may_continue;
};

BrokenStart broken_start(std::string_view bytes) {
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const std::size_t wanted = length_from_lead(byte_at(0));
  if (wanted == 0) {
    return {1, false};
  }
  ByteRange allowed = second_byte_range(byte_at(0));
  std::size_t length = 1;
  while (length < wanted && length < bytes.size() && allowed.holds(byte_at(length))) {
    allowed = {0x80, 0xBF};
    ++length;
  }
  return {length, length == bytes.size()};
}

}  // namespace

std::string Utf8Assembler::push(std::string_view bytes) {
  std::string input = std::move(held_);
  held_.clear();
  input += bytes;
  std::string text;
  for (std::string_view rest = input; !rest.empty();) {
    std::size_t length = utf8_character_length(rest);
    if (length > 0) {
      text += rest.substr(0, length);
    } else {
      const BrokenStart broken = broken_start(rest);
      if (broken.may_continue) {
        held_ = rest;
        break;
      }
      text += kReplacement;
      length = broken.length;
    }
    rest.remove_prefix(length);
  }
  return text;
}

std::string Utf8Assembler::finish() {
  if (held_.empty()) {
    return {};
  }
  held_.clear();
  return std::string(kReplacement);
}

std::string to_valid_utf8(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string text = assembler.push(bytes);
  return text + assembler.finish();
}

}  // namespace promptcached
