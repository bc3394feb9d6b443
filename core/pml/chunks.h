// Text chunks: the text between two elements, which is tokenised at once.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/pml/document.h"
#include "core/pml/schema.h"
#include "core/pml/whitespace.h"

namespace promptcached::pml {

// Role tags do not split a chunk: their texts are tokenised together with the text beside them.
struct TextChunk {
  std::vector<std::variant<std::string, RoleTag>> pieces;  // no text piece is empty
  SourceLocation location;                                 // of its first word or role tag
  bool is_blank = true;                                    // no role tag, and whitespace alone

  bool empty() const { return pieces.empty(); }
  bool has_role_tags() const;
  // Whether the last role tag up to its end is </system>, where `before` says so of what is in front of it.
  bool leaves_after_system(bool before) const;
  // Its last role tag is </user>, and only whitespace follows.
  bool ends_after_closed_user() const;
};

// An element's children: chunks[i] stands before elements[i], and one more chunk after the last element.
struct ChunkedChildren {
  std::vector<TextChunk> chunks;
  std::vector<const Element*> elements;
};

// `end`: what the end of `element` is to whitespace, kElementEnd or kDocumentEnd.
ChunkedChildren split_into_chunks(const Element& element, Edge end, WhitespaceMode mode);

// Whether nothing but whitespace stands in the chunk behind that piece.
bool only_whitespace_follows(const TextChunk& chunk, std::size_t piece);

}  // namespace promptcached::pml
