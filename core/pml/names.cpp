#include "core/pml/names.h"

#include <algorithm>
#include <array>

namespace promptcached::pml {
namespace {

constexpr std::array<std::string_view, 10> kReserved = {"schema",   "module", "union", "param",     "parameter",
                                                        "scaffold", "system", "user",  "assistant", "prompt"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

bool is_reserved(std::string_view name) { return std::ranges::find(kReserved, name) != kReserved.end(); }

bool is_name(std::string_view name) {
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
}

Result<std::string> read_name(const Element& element, NameUse use) {
  const std::string* name = find_attribute(element, "name");
  if (name == nullptr) {
    return make_error_at(ErrorCode::kInvalidPml, element.location, "<" + element.name + "> needs the attribute 'name'");
  }
  // A path of names stays well below this too; see SchemaReader.
  constexpr std::size_t kLongest = 256;
  if (name->size() > kLongest) {
    return make_error_at(
        ErrorCode::kInvalidPml, element.location,
        "the name of this <" + element.name + "> is longer than " + std::to_string(kLongest) + " bytes");
  }
  if (!is_name(*name)) {
    return make_error_at(ErrorCode::kInvalidPml, element.location,
                         "'" + shown(*name) + "' cannot be the name of a <" + element.name +
                             ">: names start with a letter or '_' and go on with letters, digits, '_', '.' and '-'");
  }
  if (use != NameUse::kSchema && is_reserved(*name)) {
    return make_error_at(ErrorCode::kInvalidPml, element.location,
                         "'" + *name + "' cannot be the name of a <" + element.name + ">: <" + *name +
                             "> is an element of PML itself; choose another name");
  }
  return *name;
}

}  // namespace promptcached::pml
