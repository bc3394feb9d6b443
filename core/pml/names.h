// Names in PML: which are allowed, and which belong to the language.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/pml/document.h"

namespace promptcached::pml {

inline bool is_parameter_element(std::string_view name) { return name == "param" || name == "parameter"; }

// An element name of the language itself; no module or parameter may be called so.
bool is_reserved(std::string_view name);

// [A-Za-z_][A-Za-z0-9_.-]*
bool is_name(std::string_view name);

enum class NameUse { kSchema, kModule, kParameter };

// The element's `name`, checked. Error: kInvalidPml.
Result<std::string> read_name(const Element& element, NameUse use);

}  // namespace promptcached::pml
