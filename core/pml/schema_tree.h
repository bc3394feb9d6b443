// A schema as read: names, structure and text checked, nothing tokenised or placed yet.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/pml/chunks.h"
#include "core/pml/document.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

struct ParameterNode {
  std::string name;
  std::int32_t length = 0;
  std::string placeholder;  // the `scaffold` text; empty: unknown tokens alone
  SourceLocation location;
};

struct ModuleItem;

struct ModuleNode {
  std::string name;  // empty for the root
  RetentionPolicy retention;
  bool cache = true;
  bool allow_special_tokens = false;
  bool is_union_default = false;
  std::vector<ModuleItem> items;  // document order
  SourceLocation location;
};

struct UnionNode {
  int number = 0;  // from 1, document order
  std::vector<ModuleNode> members;
};

struct ModuleItem {
  std::variant<TextChunk, ParameterNode, ModuleNode, UnionNode> content;
};

struct ScaffoldNode {
  std::vector<std::string> paths;
  SourceLocation location;
};

struct SchemaTree {
  std::string name;
  AttentionMode attention = AttentionMode::kRooted;
  WhitespaceRule whitespace = WhitespaceRule::kEdges;
  RetentionPolicy retention;
  ModuleNode root;
  std::vector<ScaffoldNode> scaffolds;
  std::vector<Warning> warnings;
};

// Errors: kInvalidPml, kDuplicateName, kUnknownModule (a union's `scaffold`); all with a place.
Result<SchemaTree> read_schema(const Element& root, const Limits& limits);

// Adds a warning, unless there are very many already.
void warn(std::vector<Warning>& warnings, SourceLocation location, std::string message);

}  // namespace promptcached::pml
