#include "core/pml/document.h"

#include <algorithm>
#include <array>

namespace promptcached::pml {
namespace {

constexpr std::array kRoles = {Role::kSystem, Role::kUser, Role::kAssistant};

}  // namespace

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
  }
  return "user";
}

const Role* find_role(std::string_view name) {
  const auto* const found = std::ranges::find_if(kRoles, [&](Role role) { return to_string(role) == name; });
  return found == kRoles.end() ? nullptr : found;
}

std::string spelling(const RoleTag& tag) {
  return std::string(tag.closing ? "</" : "<") + std::string(to_string(tag.role)) + ">";
}

const std::string* find_attribute(const Element& element, std::string_view name) {
  const auto found = std::ranges::find_if(element.attributes, [&](const Attribute& a) { return a.name == name; });
  return found == element.attributes.end() ? nullptr : &found->value;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  if (text.size() <= kLongest) {
    return std::string(text);
  }
  std::size_t cut = kLongest;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) {
    --cut;
  }
  return std::string(text.substr(0, cut)) + "...";
}

bool is_blank(std::string_view text) { return std::ranges::all_of(text, is_space); }

}  // namespace promptcached::pml
