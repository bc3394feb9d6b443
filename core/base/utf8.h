// UTF-8: strict validation, and repair for text that is only shown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace promptcached {

// Length in bytes (1 to 4) of the well-formed UTF-8 character at the start of `text`; 0 when there is none: an
// overlong form, a surrogate, a code point past U+10FFFF, a stray continuation byte, a cut character, or no text.
std::size_t utf8_character_length(std::string_view text);

// Byte offset of the first thing that is not well-formed UTF-8; nullopt when all of `text` is.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

inline bool is_valid_utf8(std::string_view text) { return !find_invalid_utf8(text).has_value(); }

// `text` with every byte that belongs to no well-formed character replaced by U+FFFD. For logs, never for prompts.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace promptcached
