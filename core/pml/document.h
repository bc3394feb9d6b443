// A PML document as written: elements, text and role tags, before any of it is given a meaning.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

struct Attribute {
  std::string name;
  std::string value;
};

// Text between two pieces of markup. Comments and processing instructions do not split it, CDATA sections and entities
// are part of it, and line ends are LF.
struct Text {
  std::string value;
  SourceLocation location;  // of its first character that is not whitespace; of its first one if there is none
};

struct Node;

struct Element {
  std::string name;
  SourceLocation location;  // of its '<'
  std::vector<Attribute> attributes;
  std::vector<Node> children;
};

struct Node {
  std::variant<Text, RoleTag, Element> content;
};

// The value of the attribute, or nullptr.
const std::string* find_attribute(const Element& element, std::string_view name);

// XML's whitespace: space, tab, line feed, carriage return.
inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_blank(std::string_view text);

// `text` as a message shows it: what a client wrote must not fill the message, nor be cut inside a character.
std::string shown(std::string_view text);

// "<user>" or "</user>".
std::string spelling(const RoleTag& tag);

inline bool closes_system(const RoleTag& tag) { return tag.closing && tag.role == Role::kSystem; }

// The role of that name, or nullptr.
const Role* find_role(std::string_view name);

}  // namespace promptcached::pml
