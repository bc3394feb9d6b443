#include "core/pml/parser.h"

#include <algorithm>
#include <pugixml.hpp>
#include <string>
#include <utility>

#include "core/pml/characters.h"
#include "core/pml/scanner.h"
#include "core/pml/source_map.h"

namespace promptcached::pml {
namespace {

// Whitespace is all kept (the whitespace rules decide later); line ends become LF and attribute values are normalised,
// as XML says; processing instructions are kept because role tags were rewritten as such.
constexpr unsigned int kParseFlags = pugi::parse_cdata | pugi::parse_escapes | pugi::parse_wconv_attribute |
                                     pugi::parse_eol | pugi::parse_ws_pcdata | pugi::parse_pi;

class TreeBuilder final {
 public:
  TreeBuilder(std::string_view source, const SourceMap& map, const std::vector<ScannedRoleTag>& role_tags)
      : source_(source), map_(map), role_tags_(role_tags) {}

  // Document order: role tags are met in the order in which the scanner found them.
  Element build(const pugi::xml_node& node) {
    Element element;
    element.name = node.name();
    element.location = map_.locate(offset_of(node) - 1);  // pugixml counts from the name
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      element.attributes.push_back({attribute.name(), attribute.value()});
    }
    for (const pugi::xml_node& child : node.children()) {
      add_child(element.children, child);
    }
    return element;
  }

 private:
  static std::size_t offset_of(const pugi::xml_node& node) { return static_cast<std::size_t>(node.offset_debug()); }

  void add_child(std::vector<Node>& children, const pugi::xml_node& child) {
    switch (child.type()) {
      case pugi::node_element:
        children.push_back({build(child)});
        break;
      case pugi::node_pcdata:
      case pugi::node_cdata:
        add_text(children, child.value(), offset_of(child));
        break;
      case pugi::node_pi:
        add_role_tag(children, offset_of(child) - 2);
        break;
      default:
        break;
    }
  }

  // Joins the text to what stands before it: comments, instructions and CDATA borders do not split text.
  void add_text(std::vector<Node>& children, std::string_view value, std::size_t offset) {
    if (value.empty()) {
      return;
    }
    const std::size_t first_word = std::min(source_.find_first_not_of(" \t\r\n", offset), source_.size());
    const SourceLocation location = map_.locate(is_blank(value) ? offset : first_word);
    Text* before = children.empty() ? nullptr : std::get_if<Text>(&children.back().content);
    if (before == nullptr) {
      children.push_back({Text{std::string(value), location}});
      text_is_blank_ = is_blank(value);
      return;
    }
    if (text_is_blank_) {
      before->location = location;
      text_is_blank_ = is_blank(value);
    }
    before->value += value;
  }

  void add_role_tag(std::vector<Node>& children, std::size_t offset) {
    if (next_role_tag_ == role_tags_.size() || role_tags_[next_role_tag_].offset != offset) {
      return;  // an instruction of the document's own
    }
    const ScannedRoleTag& tag = role_tags_[next_role_tag_++];
    children.push_back({RoleTag{tag.role, tag.closing, map_.locate(offset)}});
  }

  std::string_view source_;
  const SourceMap& map_;
  const std::vector<ScannedRoleTag>& role_tags_;
  std::size_t next_role_tag_ = 0;
  bool text_is_blank_ = true;  // the text being joined, so far
};

Result<Element> build_tree(std::string_view source, const SourceMap& map, ScannedSource& scanned) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed =
      document.load_buffer_inplace(scanned.text.data(), scanned.text.size(), kParseFlags, pugi::encoding_utf8);
  if (!parsed) {
    // The scanner is stricter than pugixml; the fuzz target holds us to it.
    return make_error_at(
        ErrorCode::kInternal, map.locate(static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, parsed.offset))),
        std::string("the XML library refused a document that passed the scanner: ") + parsed.description());
  }
  return TreeBuilder(source, map, scanned.role_tags).build(document.document_element());
}

}  // namespace

Result<Element> parse_document(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_bytes) {
    return make_error(ErrorCode::kBodyTooLarge, "the document has " + std::to_string(source.size()) +
                                                    " bytes; the limit is " + std::to_string(limits.max_bytes));
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (source.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    source.remove_prefix(kByteOrderMark.size());
  }
  const SourceMap map(source);
  if (const auto fault = find_illegal_character(source)) {
    return make_error_at(ErrorCode::kInvalidPml, map.locate(fault->offset), fault->reason);
  }
  Result<ScannedSource> scanned = scan(source, map, limits);
  if (!scanned.ok()) {
    return scanned.error();
  }
  return build_tree(source, map, *scanned);
}

}  // namespace promptcached::pml
