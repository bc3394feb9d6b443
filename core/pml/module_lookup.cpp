#include "core/pml/module_lookup.h"

#include <algorithm>
#include <vector>

#include "core/base/nearest_name.h"

namespace promptcached::pml {
namespace {

// Comparing with every name of a huge schema would make a typing error expensive.
constexpr std::size_t kMostCompared = 1000;

const Module& module_at(const Schema& schema, ModuleIndex index) {
  return schema.modules[static_cast<std::size_t>(index)];
}

// <outer><inner/></outer>
std::string import_markup(const std::string& path) {
  std::string open;
  std::string close;
  std::size_t at = 0;
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', at)) {
    const std::string name = path.substr(at, slash - at);
    open += "<" + name + ">";
    close.insert(0, "</" + name + ">");
    at = slash + 1;
  }
  return open + "<" + path.substr(at) + "/>" + close;
}

const Module* find_elsewhere(const Schema& schema, std::string_view name) {
  const auto found = std::find_if(schema.modules.begin() + 1, schema.modules.end(),
                                  [&](const Module& module) { return module.name == name; });
  return found == schema.modules.end() ? nullptr : &*found;
}

}  // namespace

std::optional<ModuleIndex> find_module_index(const Schema& schema, std::string_view path) {
  const auto path_of = [&](ModuleIndex index) -> std::string_view { return module_at(schema, index).path; };
  const auto found = std::ranges::lower_bound(schema.by_path, path, {}, path_of);
  if (found == schema.by_path.end() || path_of(*found) != path) {
    return std::nullopt;
  }
  return *found;
}

const Module* find_module(const Schema& schema, std::string_view path) {
  const std::optional<ModuleIndex> index = find_module_index(schema, path);
  return index ? &module_at(schema, *index) : nullptr;
}

std::optional<ModuleIndex> find_child(const Schema& schema, ModuleIndex parent, std::string_view name) {
  if (parent == kRoot) {
    const std::optional<ModuleIndex> index = find_module_index(schema, name);
    return index == kRoot ? std::nullopt : index;
  }
  return find_module_index(schema, module_at(schema, parent).path + "/" + std::string(name));
}

std::string hint_for_unknown_import(const Schema& schema, ModuleIndex parent, std::string_view name) {
  if (const Module* elsewhere = find_elsewhere(schema, name)) {
    if (elsewhere->parent == kRoot) {
      return ": '" + elsewhere->name + "' is not nested: write <" + elsewhere->name + "/> directly in <prompt>";
    }
    return ": '" + elsewhere->name + "' is nested in '" + module_at(schema, elsewhere->parent).path + "': write " +
           import_markup(elsewhere->path);
  }
  std::vector<std::string> names;
  for (const ModuleIndex child : module_at(schema, parent).children) {
    if (names.size() == kMostCompared) {
      break;
    }
    names.push_back(module_at(schema, child).name);
  }
  if (names.empty()) {
    return parent == kRoot ? " (the schema has no modules)" : " (it has no nested modules)";
  }
  return did_you_mean(name, names);
}

std::string hint_for_unknown_path(const Schema& schema, std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (const Module* elsewhere = find_elsewhere(schema, name)) {
    return " (did you mean '" + elsewhere->path + "'?)";
  }
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < std::min(schema.modules.size(), kMostCompared); ++i) {
    paths.push_back(schema.modules[i].path);
  }
  return did_you_mean(path, paths);
}

}  // namespace promptcached::pml
