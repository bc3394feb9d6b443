#include "core/pml/imports.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/nearest_name.h"
#include "core/pml/module_lookup.h"
#include "core/pml/names.h"

namespace promptcached::pml {
namespace {

Error unknown_module(const Schema& schema, ModuleIndex parent, const Element& import) {
  std::string message = parent == kRoot ? "the schema '" + schema.name + "' has no module '" + shown(import.name) + "'"
                                        : "the module '" + schema.modules[static_cast<std::size_t>(parent)].path +
                                              "' has no nested module '" + shown(import.name) + "'";
  if (is_reserved(import.name)) {
    message += ": a prompt imports modules, members of unions too, by their own names: write <NAME/>, not <" +
               import.name + ">";
  } else {
    message += hint_for_unknown_import(schema, parent, import.name);
  }
  return make_error_at(ErrorCode::kUnknownModule, import.location, std::move(message));
}

// Looks parameters up by name: by walking the module's few, or through an index when a prompt gives very many.
class ParameterLookup final {
 public:
  ParameterLookup(const Module& module, std::size_t lookups) : module_(module) {
    constexpr std::size_t kFew = 8;
    if (lookups > kFew) {
      for (const Parameter& parameter : module.parameters) {
        index_.emplace(parameter.name, &parameter);
      }
    }
  }

  const Parameter* find(const std::string& name) const {
    if (!index_.empty()) {
      const auto found = index_.find(name);
      return found == index_.end() ? nullptr : found->second;
    }
    const auto found = std::ranges::find(module_.parameters, name, &Parameter::name);
    return found == module_.parameters.end() ? nullptr : &*found;
  }

 private:
  const Module& module_;
  std::unordered_map<std::string_view, const Parameter*> index_;
};

Error unknown_parameter(const Module& module, const Element& import, const std::string& name) {
  std::string message = "the module '" + module.path + "' has no parameter '" + shown(name) + "'";
  if (module.parameters.empty()) {
    message += " (it has none)";
  } else {
    std::vector<std::string> names;
    constexpr std::size_t kMostCompared = 1000;
    for (std::size_t i = 0; i < std::min(module.parameters.size(), kMostCompared); ++i) {
      names.push_back(module.parameters[i].name);
    }
    message += did_you_mean(name, names);
  }
  return make_error_at(ErrorCode::kUnknownParameter, import.location, std::move(message));
}

}  // namespace

Result<ModuleIndex> ImportResolver::add(const Element& import) { return add_to(kRoot, import); }

Result<ModuleIndex> ImportResolver::add_to(ModuleIndex parent, const Element& import) {
  const std::optional<ModuleIndex> index = find_child(schema_, parent, import.name);
  if (!index) {
    return unknown_module(schema_, parent, import);
  }
  Status status = claim(*index, import);
  if (status.ok()) {
    status = add_arguments(module(*index), import);
  }
  if (!status.ok()) {
    return status.error();
  }
  for (const Node& child : import.children) {
    if (const auto* nested = std::get_if<Element>(&child.content)) {
      const Result<ModuleIndex> added = add_to(*index, *nested);
      if (!added.ok()) {
        return added.error();
      }
    }
  }
  return *index;
}

// Each module once, and one member of a union.
Status ImportResolver::claim(ModuleIndex index, const Element& import) {
  const auto [first, added] = imported_.emplace(index, import.location);
  if (!added) {
    return make_error_at(ErrorCode::kDuplicateImport, import.location,
                         "the module '" + module(index).path + "' is imported twice: line " +
                             std::to_string(first->second.line) + " imports it already");
  }
  const int number = module(index).union_number;
  if (number == 0) {
    return {};
  }
  const auto [chosen, free] = union_members_.emplace(number, index);
  if (!free) {
    return make_error_at(ErrorCode::kUnionConflict, import.location,
                         "'" + module(index).path + "' and '" + module(chosen->second).path + "' (line " +
                             std::to_string(imported_.at(chosen->second).line) +
                             ") are members of one union: import one of them");
  }
  return {};
}

Status ImportResolver::add_arguments(const Module& imported, const Element& import) {
  const ParameterLookup parameters(imported, import.attributes.size());
  for (const Attribute& argument : import.attributes) {
    const Parameter* parameter = parameters.find(argument.name);
    if (parameter == nullptr) {
      return unknown_parameter(imported, import, argument.name);
    }
    const Result<std::vector<TokenId>> tokens = encoder_.encode_text(argument.value, false);
    if (!tokens.ok()) {
      Error error = tokens.error();
      error.location = import.location;
      return error;
    }
    if (tokens->size() > static_cast<std::size_t>(parameter->length)) {
      return make_error_at(ErrorCode::kArgumentTooLong, import.location,
                           "the argument '" + argument.name + "' of <" + import.name + "> is " +
                               std::to_string(tokens->size()) + " tokens long; the slot holds " +
                               std::to_string(parameter->length));
    }
    std::int32_t position = parameter->start;
    for (const TokenId token : *tokens) {
      arguments_.push_back({token, position++});
    }
  }
  return {};
}

std::vector<ModuleIndex> ImportResolver::modules() const {
  std::vector<ModuleIndex> modules;
  modules.reserve(imported_.size());
  for (const auto& [index, location] : imported_) {
    modules.push_back(index);
  }
  std::ranges::sort(modules);
  return modules;
}

}  // namespace promptcached::pml
