#include "core/pml/whitespace.h"

#include <algorithm>

#include "core/pml/document.h"

namespace promptcached::pml {
namespace {

// Only a run with a line break in it is layout: "a <param/> b" keeps its spaces.
bool is_layout(std::string_view run) { return run.find_first_of("\r\n") != std::string_view::npos; }

std::string_view leading_layout(Edge left) { return left == Edge::kParam ? " " : ""; }

std::string_view trailing_layout(Edge right) {
  switch (right) {
    case Edge::kParam:
      return " ";
    case Edge::kElementEnd:
    case Edge::kBlock:
    case Edge::kRoleOpen:
      return "\n";
    case Edge::kElementStart:
    case Edge::kDocumentEnd:
    case Edge::kRoleClose:
      return "";
  }
  return "";
}

struct Parts {
  std::string_view leading;
  std::string_view middle;  // starts and ends with something that is not whitespace
  std::string_view trailing;
};

Parts split(std::string_view text) {
  const auto begin = static_cast<std::size_t>(std::ranges::find_if_not(text, is_space) - text.begin());
  std::size_t end = text.size();
  while (end > begin && is_space(text[end - 1])) {
    --end;
  }
  return {text.substr(0, begin), text.substr(begin, end - begin), text.substr(end)};
}

std::string apply_edges(const Parts& parts, Edge left, Edge right) {
  std::string result;
  result += is_layout(parts.leading) ? leading_layout(left) : parts.leading;
  result += parts.middle;
  result += is_layout(parts.trailing) ? trailing_layout(right) : parts.trailing;
  return result;
}

// A text that is one run of whitespace has both neighbours: the param's rule comes first, and whatever else stands
// before it (the start of an element, a module, a role tag) removes it.
std::string apply_edges_to_blank(std::string_view run, Edge left, Edge right) {
  if (!is_layout(run)) {
    return std::string(run);
  }
  return left == Edge::kParam || right == Edge::kParam ? " " : "";
}

// The reference code's rule: each run at an edge is one space, and so is a text of nothing but whitespace.
std::string apply_reference(const Parts& parts) {
  std::string result = parts.leading.empty() ? "" : " ";
  result += parts.middle;
  result += parts.trailing.empty() ? "" : " ";
  return result;
}

}  // namespace

std::string apply_whitespace(std::string_view text, Edge left, Edge right, WhitespaceMode mode) {
  if (mode.preserve) {
    return std::string(text);
  }
  const Parts parts = split(text);
  if (mode.rule == WhitespaceRule::kReference) {
    return apply_reference(parts);
  }
  return parts.middle.empty() ? apply_edges_to_blank(text, left, right) : apply_edges(parts, left, right);
}

}  // namespace promptcached::pml
