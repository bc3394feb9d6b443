#include "core/pml/chunks.h"

#include <algorithm>
#include <optional>

#include "core/pml/names.h"

namespace promptcached::pml {
namespace {

Edge edge_of(const Node& node) {
  if (const auto* tag = std::get_if<RoleTag>(&node.content)) {
    return tag->closing ? Edge::kRoleClose : Edge::kRoleOpen;
  }
  return is_parameter_element(std::get<Element>(node.content).name) ? Edge::kParam : Edge::kBlock;
}

void add_piece(TextChunk& chunk, std::variant<std::string, RoleTag> piece, SourceLocation location) {
  // The first word says best where a chunk is; a chunk of nothing but whitespace has only its start.
  if (chunk.is_blank) {
    chunk.location = location;
    const auto* text = std::get_if<std::string>(&piece);
    chunk.is_blank = text != nullptr && is_blank(*text);
  }
  chunk.pieces.push_back(std::move(piece));
}

// Its index among the chunk's pieces.
std::optional<std::size_t> last_role_tag(const TextChunk& chunk) {
  for (std::size_t i = chunk.pieces.size(); i-- > 0;) {
    if (std::holds_alternative<RoleTag>(chunk.pieces[i])) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace

bool TextChunk::has_role_tags() const {
  return std::ranges::any_of(pieces, [](const auto& piece) { return std::holds_alternative<RoleTag>(piece); });
}

bool TextChunk::leaves_after_system(bool before) const {
  const std::optional<std::size_t> last = last_role_tag(*this);
  return last ? closes_system(std::get<RoleTag>(pieces[*last])) : before;
}

bool TextChunk::ends_after_closed_user() const {
  const std::optional<std::size_t> last = last_role_tag(*this);
  if (!last) {
    return false;
  }
  const auto& tag = std::get<RoleTag>(pieces[*last]);
  return tag.closing && tag.role == Role::kUser && only_whitespace_follows(*this, *last);
}

bool only_whitespace_follows(const TextChunk& chunk, std::size_t piece) {
  return std::all_of(chunk.pieces.begin() + static_cast<std::ptrdiff_t>(piece) + 1, chunk.pieces.end(),
                     [](const auto& next) {
                       const auto* text = std::get_if<std::string>(&next);
                       return text != nullptr && is_blank(*text);
                     });
}

ChunkedChildren split_into_chunks(const Element& element, Edge end, WhitespaceMode mode) {
  ChunkedChildren result;
  result.chunks.emplace_back();
  const std::vector<Node>& nodes = element.children;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const auto* child = std::get_if<Element>(&nodes[i].content)) {
      result.elements.push_back(child);
      result.chunks.emplace_back();
    } else if (const auto* tag = std::get_if<RoleTag>(&nodes[i].content)) {
      add_piece(result.chunks.back(), *tag, tag->location);
    } else {
      const auto& text = std::get<Text>(nodes[i].content);
      const Edge left = i == 0 ? Edge::kElementStart : edge_of(nodes[i - 1]);
      const Edge right = i + 1 == nodes.size() ? end : edge_of(nodes[i + 1]);
      std::string kept = apply_whitespace(text.value, left, right, mode);
      if (!kept.empty()) {
        add_piece(result.chunks.back(), std::move(kept), text.location);
      }
    }
  }
  return result;
}

}  // namespace promptcached::pml
