// Reads a schema's elements: which may stand where, with which attributes and names.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "core/base/nearest_name.h"
#include "core/pml/attributes.h"
#include "core/pml/names.h"
#include "core/pml/schema_tree.h"

namespace promptcached::pml {
namespace {

// Paths are names joined; without a limit, deep nesting of long names would make paths that dwarf the document.
constexpr std::size_t kLongestPath = 1000;

Error fault(const Element& element, std::string message) {
  return make_error_at(ErrorCode::kInvalidPml, element.location, std::move(message));
}

// What an element takes over from those around it.
struct Surroundings {
  bool allow_special_tokens = false;
  bool preserve_space = false;
  std::size_t path_length = 0;
};

// Where each name of a scope was first given.
using NamesInScope = std::unordered_map<std::string, SourceLocation>;

Status add_name(NamesInScope& names, const std::string& name, const Element& element) {
  const auto [first, added] = names.emplace(name, element.location);
  if (added) {
    return {};
  }
  return make_error_at(ErrorCode::kDuplicateName, element.location,
                       "the name '" + name + "' of this <" + element.name + "> is taken: line " +
                           std::to_string(first->second.line) + " has it in the same place");
}

class SchemaReader final {
 public:
  explicit SchemaReader(const Limits& limits) : limits_(limits) {}
  Result<SchemaTree> read(const Element& root);

 private:
  struct Scope {
    NamesInScope modules;
    NamesInScope parameters;
    bool is_root = false;
  };

  Status read_schema_attributes(const Element& root, Surroundings& surroundings);
  Status read_items(const Element& element, const Surroundings& surroundings, bool is_root, ModuleNode& module);
  Status read_item(const Element& element, const Surroundings& surroundings, Scope& scope, ModuleNode& module);
  Status read_module_item(const Element& element, const Surroundings& surroundings, Scope& scope, ModuleNode& module);
  Status read_union_item(const Element& element, const Surroundings& surroundings, Scope& scope, ModuleNode& module);
  Status read_parameter_item(const Element& element, Scope& scope, ModuleNode& module);
  Status read_scaffold(const Element& element, bool is_root);
  Result<ModuleNode> read_module(const Element& element, const Surroundings& surroundings);
  Result<ParameterNode> read_parameter(const Element& element);
  Result<std::int32_t> read_parameter_length(const Element& element);
  Status choose_union_default(const Element& element, UnionNode& node);
  Status check_empty(const Element& element, std::string_view why);

  const Limits& limits_;
  SchemaTree tree_;
  int unions_ = 0;
  std::size_t scaffold_members_ = 0;
};

Result<SchemaTree> SchemaReader::read(const Element& root) {
  if (root.name != "schema") {
    return fault(root, "the root element of a schema is <schema>, not <" + shown(root.name) + ">" +
                           (root.name == "prompt" ? ": this is a prompt" : ""));
  }
  Surroundings surroundings;
  Status status = read_schema_attributes(root, surroundings);
  if (!status.ok()) {
    return status.error();
  }
  tree_.root.location = root.location;
  tree_.root.retention = tree_.retention;
  tree_.root.allow_special_tokens = surroundings.allow_special_tokens;
  status = read_items(root, surroundings, true, tree_.root);
  if (!status.ok()) {
    return status.error();
  }
  return std::move(tree_);
}

Status SchemaReader::read_schema_attributes(const Element& root, Surroundings& surroundings) {
  constexpr std::array<std::string_view, 8> kAllowed = {"name", "attention", "whitespace",     "pin",
                                                        "ttl",  "priority",  "special-tokens", "xml:space"};
  const Status status = check_attributes(root, kAllowed);
  if (!status.ok()) {
    return status;
  }
  Result<std::string> name = read_name(root, NameUse::kSchema);
  const Result<AttentionMode> attention = read_attention(root);
  const Result<WhitespaceRule> whitespace = read_whitespace_rule(root);
  const Result<RetentionPolicy> retention = read_retention(root, {});
  const Result<bool> special_tokens = read_special_tokens(root, false);
  const Result<bool> preserve_space = read_preserve_space(root, false);
  if (!name.ok()) {
    return name.error();
  }
  if (!attention.ok()) {
    return attention.error();
  }
  if (!whitespace.ok()) {
    return whitespace.error();
  }
  if (!retention.ok()) {
    return retention.error();
  }
  if (!special_tokens.ok()) {
    return special_tokens.error();
  }
  if (!preserve_space.ok()) {
    return preserve_space.error();
  }
  tree_.name = std::move(*name);
  tree_.attention = *attention;
  tree_.whitespace = *whitespace;
  tree_.retention = *retention;
  surroundings.allow_special_tokens = *special_tokens;
  surroundings.preserve_space = *preserve_space;
  return {};
}

Status SchemaReader::read_items(const Element& element, const Surroundings& surroundings, bool is_root,
                                ModuleNode& module) {
  ChunkedChildren children = split_into_chunks(element, is_root ? Edge::kDocumentEnd : Edge::kElementEnd,
                                               {tree_.whitespace, surroundings.preserve_space});
  Scope scope;
  scope.is_root = is_root;
  for (std::size_t i = 0; i < children.chunks.size(); ++i) {
    if (!children.chunks[i].empty()) {
      module.items.push_back({std::move(children.chunks[i])});
    }
    if (i < children.elements.size()) {
      Status status = read_item(*children.elements[i], surroundings, scope, module);
      if (!status.ok()) {
        return status;
      }
    }
  }
  return {};
}

Status SchemaReader::read_item(const Element& element, const Surroundings& surroundings, Scope& scope,
                               ModuleNode& module) {
  if (element.name == "module") {
    return read_module_item(element, surroundings, scope, module);
  }
  if (element.name == "union") {
    return read_union_item(element, surroundings, scope, module);
  }
  if (is_parameter_element(element.name)) {
    return read_parameter_item(element, scope, module);
  }
  if (element.name == "scaffold") {
    return read_scaffold(element, scope.is_root);
  }
  const std::string name = shown(element.name);
  if (element.name == "schema" || element.name == "prompt") {
    return fault(element, "<" + name + "> is a root element: it cannot stand inside a schema");
  }
  return fault(element, "unknown element <" + name + ">" +
                            did_you_mean(element.name, {"module", "union", "param", "parameter", "scaffold", "system",
                                                        "user", "assistant"}) +
                            "; if it is text, write &lt;" + name + "&gt; or put it into <![CDATA[ ... ]]>");
}

Status SchemaReader::read_module_item(const Element& element, const Surroundings& surroundings, Scope& scope,
                                      ModuleNode& module) {
  Result<ModuleNode> node = read_module(element, surroundings);
  if (!node.ok()) {
    return node.error();
  }
  Status status = add_name(scope.modules, node->name, element);
  if (status.ok()) {
    module.items.push_back({std::move(*node)});
  }
  return status;
}

Result<ModuleNode> SchemaReader::read_module(const Element& element, const Surroundings& surroundings) {
  constexpr std::array<std::string_view, 7> kAllowed = {"name",           "pin",      "ttl", "priority", "cache",
                                                        "special-tokens", "xml:space"};
  const Status known = check_attributes(element, kAllowed);
  if (!known.ok()) {
    return known.error();
  }
  ModuleNode module;
  module.location = element.location;
  Result<std::string> name = read_name(element, NameUse::kModule);
  if (!name.ok()) {
    return name.error();
  }
  module.name = std::move(*name);
  Surroundings inside = surroundings;
  inside.path_length += module.name.size() + 1;
  if (inside.path_length > kLongestPath) {
    return fault(element, "the path of this module is longer than " + std::to_string(kLongestPath) +
                              " bytes: use shorter names or less nesting");
  }
  const Result<RetentionPolicy> retention = read_retention(element, tree_.retention);
  const Result<bool> cache = read_boolean(element, "cache", true);
  const Result<bool> special_tokens = read_special_tokens(element, surroundings.allow_special_tokens);
  const Result<bool> preserve_space = read_preserve_space(element, surroundings.preserve_space);
  for (const Result<bool>* flag : {&cache, &special_tokens, &preserve_space}) {
    if (!flag->ok()) {
      return flag->error();
    }
  }
  if (!retention.ok()) {
    return retention.error();
  }
  module.retention = *retention;
  module.cache = *cache;
  module.allow_special_tokens = inside.allow_special_tokens = *special_tokens;
  inside.preserve_space = *preserve_space;
  const Status status = read_items(element, inside, false, module);
  if (!status.ok()) {
    return status.error();
  }
  if (module.items.empty()) {
    warn(tree_.warnings, element.location, "the module '" + module.name + "' is empty");
  }
  return module;
}

Status SchemaReader::read_union_item(const Element& element, const Surroundings& surroundings, Scope& scope,
                                     ModuleNode& module) {
  constexpr std::array<std::string_view, 2> kAllowed = {"scaffold", "xml:space"};
  Status status = check_attributes(element, kAllowed);
  if (!status.ok()) {
    return status;
  }
  const Result<bool> preserve_space = read_preserve_space(element, surroundings.preserve_space);
  if (!preserve_space.ok()) {
    return preserve_space.error();
  }
  Surroundings inside = surroundings;
  inside.preserve_space = *preserve_space;
  UnionNode node;
  node.number = ++unions_;
  for (const Node& child : element.children) {
    const auto* text = std::get_if<Text>(&child.content);
    if (text != nullptr && is_blank(text->value)) {
      continue;
    }
    const auto* member = std::get_if<Element>(&child.content);
    if (member == nullptr || member->name != "module") {
      const SourceLocation place = text != nullptr     ? text->location
                                   : member != nullptr ? member->location
                                                       : std::get<RoleTag>(child.content).location;
      return make_error_at(ErrorCode::kInvalidPml, place, "a <union> holds modules only: wrap this in a <module>");
    }
    Result<ModuleNode> read = read_module(*member, inside);
    if (!read.ok()) {
      return read.error();
    }
    // A union's members are siblings of the union's siblings: prompts name them directly.
    status = add_name(scope.modules, read->name, *member);
    if (!status.ok()) {
      return status;
    }
    node.members.push_back(std::move(*read));
  }
  status = choose_union_default(element, node);
  if (status.ok()) {
    module.items.push_back({std::move(node)});
  }
  return status;
}

Status SchemaReader::choose_union_default(const Element& element, UnionNode& node) {
  if (node.members.size() < 2) {
    warn(tree_.warnings, element.location,
         node.members.empty() ? "this union has no members" : "this union has one member: a module alone would do");
  }
  const std::string* name = find_attribute(element, "scaffold");
  if (name == nullptr) {
    return {};
  }
  std::vector<std::string> names;
  for (ModuleNode& member : node.members) {
    if (member.name == *name) {
      member.is_union_default = true;
      if (tree_.attention != AttentionMode::kContextual) {
        warn(tree_.warnings, element.location,
             "'scaffold' of a union has an effect only with attention=\"contextual\"");
      }
      return {};
    }
    if (names.size() < 1000) {
      names.push_back(member.name);
    }
  }
  return make_error_at(
      ErrorCode::kUnknownModule, element.location,
      "this union has no member '" + shown(*name) + "' that its 'scaffold' could name" + did_you_mean(*name, names));
}

Status SchemaReader::read_parameter_item(const Element& element, Scope& scope, ModuleNode& module) {
  if (scope.is_root) {
    return fault(element, "<" + element.name + "> stands inside a <module>, not in the schema's root text");
  }
  Result<ParameterNode> node = read_parameter(element);
  if (!node.ok()) {
    return node.error();
  }
  Status status = add_name(scope.parameters, node->name, element);
  if (status.ok()) {
    module.items.push_back({std::move(*node)});
  }
  return status;
}

Result<ParameterNode> SchemaReader::read_parameter(const Element& element) {
  constexpr std::array<std::string_view, 4> kAllowed = {"name", "len", "length", "scaffold"};
  for (const Status& status :
       {check_attributes(element, kAllowed), check_empty(element, "a slot's content is given by the prompt")}) {
    if (!status.ok()) {
      return status.error();
    }
  }
  ParameterNode node;
  node.location = element.location;
  Result<std::string> name = read_name(element, NameUse::kParameter);
  if (!name.ok()) {
    return name.error();
  }
  node.name = std::move(*name);
  const Result<std::int32_t> length = read_parameter_length(element);
  if (!length.ok()) {
    return length.error();
  }
  node.length = *length;
  if (node.length == 0) {
    warn(tree_.warnings, element.location, "the slot '" + node.name + "' holds no tokens: every argument is too long");
  }
  if (const std::string* placeholder = find_attribute(element, "scaffold")) {
    node.placeholder = *placeholder;
  }
  return node;
}

Result<std::int32_t> SchemaReader::read_parameter_length(const Element& element) {
  const std::string* len = find_attribute(element, "len");
  const std::string* length = find_attribute(element, "length");
  if (len != nullptr && length != nullptr) {
    return fault(element, "<" + element.name + "> has both 'len' and 'length', which mean the same: keep one");
  }
  const std::string* value = len != nullptr ? len : length;
  if (value == nullptr) {
    return fault(element, "<" + element.name + "> needs the attribute 'len': how many tokens the slot holds");
  }
  const std::optional<std::int32_t> parsed = parse_length(*value);
  if (!parsed) {
    return fault(element, "'len' of <" + element.name + "> is a number of tokens from 0 to 999999999, not '" +
                              shown(*value) + "'");
  }
  return *parsed;
}

Status SchemaReader::read_scaffold(const Element& element, bool is_root) {
  constexpr std::array<std::string_view, 1> kAllowed = {"modules"};
  if (!is_root) {
    return fault(element, "<scaffold> stands directly in <schema>; its paths (outer/inner) reach nested modules");
  }
  for (const Status& status :
       {check_attributes(element, kAllowed), check_empty(element, "it names modules by 'modules=\"a b\"'")}) {
    if (!status.ok()) {
      return status;
    }
  }
  const std::string* modules = find_attribute(element, "modules");
  if (modules == nullptr) {
    return fault(element, "<scaffold> needs the attribute 'modules': two or more paths, separated by spaces");
  }
  ScaffoldNode node;
  node.location = element.location;
  for (std::size_t at = 0; at < modules->size();) {
    const std::size_t end = std::min(modules->find_first_of(" \t\r\n", at), modules->size());
    if (end > at) {
      node.paths.push_back(modules->substr(at, end - at));
    }
    at = end + 1;
  }
  if (node.paths.size() < 2) {
    return fault(element, "<scaffold> names " + std::to_string(node.paths.size()) +
                              " module(s); a set that is encoded together has two or more");
  }
  scaffold_members_ += node.paths.size();
  if (scaffold_members_ > limits_.max_nodes) {
    return make_error_at(ErrorCode::kBodyTooLarge, element.location,
                         "scaffolds name more than " + std::to_string(limits_.max_nodes) + " modules");
  }
  tree_.scaffolds.push_back(std::move(node));
  return {};
}

Status SchemaReader::check_empty(const Element& element, std::string_view why) {
  for (const Node& child : element.children) {
    const auto* text = std::get_if<Text>(&child.content);
    if (text == nullptr || !is_blank(text->value)) {
      return fault(element, "<" + element.name + "> holds nothing: " + std::string(why));
    }
  }
  return {};
}

}  // namespace

void warn(std::vector<Warning>& warnings, SourceLocation location, std::string message) {
  constexpr std::size_t kMost = 100;  // nobody reads more, and a hostile schema could cause very many
  if (warnings.size() < kMost) {
    warnings.push_back({location, std::move(message)});
  }
}

Result<SchemaTree> read_schema(const Element& root, const Limits& limits) { return SchemaReader(limits).read(root); }

}  // namespace promptcached::pml
