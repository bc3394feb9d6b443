// What characters a PML document may hold, and the entities that spell others.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace promptcached::pml {

struct CharacterFault {
  std::size_t offset = 0;
  std::string reason;
};

// The first place where `source` is not well-formed UTF-8 or holds a character that XML does not allow.
std::optional<CharacterFault> find_illegal_character(std::string_view source);

struct Reference {
  std::size_t length = 0;  // from '&' to ';', both included; 0: refused
  std::string reason;      // why it is refused
};

// Reads the entity or character reference at the start of `text`, which begins with '&'.
Reference read_reference(std::string_view text);

}  // namespace promptcached::pml
