// Finding modules by name, and explaining names that are not there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/pml/schema.h"

namespace promptcached::pml {

std::optional<ModuleIndex> find_module_index(const Schema& schema, std::string_view path);

// The module called `name` that is nested directly in `parent` (union members included).
std::optional<ModuleIndex> find_child(const Schema& schema, ModuleIndex parent, std::string_view name);

// What to append to "no such module": where a module of that name is, or the nearest name, or nothing.
std::string hint_for_unknown_import(const Schema& schema, ModuleIndex parent, std::string_view name);
std::string hint_for_unknown_path(const Schema& schema, std::string_view path);

}  // namespace promptcached::pml
