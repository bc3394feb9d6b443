#include "core/pml/role_lint.h"

namespace promptcached::pml {
namespace {

// By value: a module may not be imported, so what follows it continues from before it.
void lint_module(const ModuleNode& node, RoleState state, std::vector<Warning>& warnings) {
  for (const ModuleItem& item : node.items) {
    if (const auto* chunk = std::get_if<TextChunk>(&item.content)) {
      for (const auto& piece : chunk->pieces) {
        const auto* tag = std::get_if<RoleTag>(&piece);
        const auto oddity = tag == nullptr ? std::nullopt : state.apply(*tag);
        if (oddity) {
          warn(warnings, tag->location, *oddity);
        }
      }
    } else if (const auto* nested = std::get_if<ModuleNode>(&item.content)) {
      lint_module(*nested, state, warnings);
    } else if (const auto* members = std::get_if<UnionNode>(&item.content)) {
      for (const ModuleNode& member : members->members) {
        lint_module(member, state, warnings);
      }
    }
  }
}

}  // namespace

std::optional<std::string> RoleState::apply(const RoleTag& tag) {
  std::optional<std::string> oddity;
  if (!tag.closing && open_) {
    oddity = spelling(tag) + " opens while " + spelling(*open_) + " is still open";
  } else if (tag.closing && !open_) {
    oddity = spelling(tag) + " closes a role that is not open here";
  } else if (tag.closing && open_->role != tag.role) {
    oddity = spelling(tag) + " closes another role than the open " + spelling(*open_);
  }
  open_ = tag.closing ? std::nullopt : std::optional(tag);
  return oddity;
}

void lint_roles(const SchemaTree& tree, std::vector<Warning>& warnings) { lint_module(tree.root, {}, warnings); }

}  // namespace promptcached::pml
