#include "core/pml/scanner.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "core/pml/characters.h"
#include "core/pml/document.h"

namespace promptcached::pml {
namespace {

constexpr std::string_view kEscapeHint = "if this '<' is text, write &lt; or put the text into <![CDATA[ ... ]]>";

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

bool is_name_part(char c) { return is_name_start(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; }

class Scanner final {
 public:
  Scanner(std::string_view source, const SourceMap& map, const Limits& limits)
      : source_(source), map_(map), limits_(limits) {
    result_.text = std::string(source);
  }

  Result<ScannedSource> run();

 private:
  struct OpenElement {
    std::string_view name;
    std::size_t offset = 0;
  };

  // A start tag as it is read.
  struct Tag {
    std::size_t offset = 0;  // of '<'
    std::size_t end = 0;     // one past '>'
    std::string_view name;
    bool self_closing = false;
  };

  Status scan_text();
  Status scan_markup();
  Status scan_comment();
  Status scan_cdata();
  Status scan_instruction();
  Status scan_start_tag();
  Status scan_end_tag();
  Status read_start_tag(Tag& tag);
  Status read_attribute(std::size_t& at, const Tag& tag);
  Status check_duplicate_attributes(const Tag& tag);
  Status check_references(std::size_t begin, std::size_t end);
  Status check_declaration(std::string_view declaration);
  Status open_element(const Tag& tag);
  Status add_role_tag(std::size_t offset, std::size_t end, Role role, bool closing);
  Status check_complete() const;
  Status count_node(std::size_t offset);

  bool at_markup(std::string_view text) const { return source_.substr(position_, text.size()) == text; }
  std::string_view read_name(std::size_t& at) const;
  bool skip_spaces(std::size_t& at) const;
  Error fault(std::size_t offset, std::string message, ErrorCode code = ErrorCode::kInvalidPml) const {
    return make_error_at(code, map_.locate(offset), std::move(message));
  }
  std::string line_of(std::size_t offset) const { return std::to_string(map_.locate(offset).line); }

  std::string_view source_;
  const SourceMap& map_;
  const Limits& limits_;
  std::size_t position_ = 0;
  std::size_t nodes_ = 0;
  bool root_seen_ = false;
  std::vector<OpenElement> open_;
  std::vector<std::pair<std::string_view, std::size_t>> attributes_;  // of the tag being read: name, offset
  ScannedSource result_;
};

Result<ScannedSource> Scanner::run() {
  while (position_ < source_.size()) {
    const Status status = source_[position_] == '<' ? scan_markup() : scan_text();
    if (!status.ok()) {
      return status.error();
    }
  }
  const Status status = check_complete();
  if (!status.ok()) {
    return status.error();
  }
  return std::move(result_);
}

Status Scanner::check_complete() const {
  if (!open_.empty()) {
    return fault(open_.back().offset, "<" + shown(open_.back().name) + "> is never closed: the document ends first");
  }
  if (!root_seen_) {
    return fault(source_.size(), "the document is empty: it has no element");
  }
  return {};
}

Status Scanner::count_node(std::size_t offset) {
  if (++nodes_ > limits_.max_nodes) {
    return fault(offset,
                 "the document has more than " + std::to_string(limits_.max_nodes) + " tags, attributes and the like",
                 ErrorCode::kBodyTooLarge);
  }
  return {};
}

Status Scanner::scan_text() {
  const std::size_t begin = position_;
  const std::size_t end = std::min(source_.find('<', begin), source_.size());
  position_ = end;
  const std::string_view text = source_.substr(begin, end - begin);
  if (open_.empty()) {
    const auto stray = std::ranges::find_if_not(text, is_space);
    if (stray != text.end()) {
      return fault(begin + static_cast<std::size_t>(stray - text.begin()),
                   root_seen_ ? "text after the end of the root element" : "text before the root element");
    }
    return {};
  }
  const std::size_t section_end = text.find("]]>");
  if (section_end != std::string_view::npos) {
    return fault(begin + section_end, "']]>' must not stand in text: write ]]&gt;");
  }
  return check_references(begin, end);
}

Status Scanner::check_references(std::size_t begin, std::size_t end) {
  // Never looks past `end`: a search that ran on to the next '&' of the document would be quadratic over all tags.
  const std::string_view text = source_.substr(begin, end - begin);
  for (std::size_t at = text.find('&'); at < text.size(); at = text.find('&', at)) {
    const Reference reference = read_reference(text.substr(at));
    if (reference.length == 0) {
      return fault(begin + at, reference.reason);
    }
    at += reference.length;
  }
  return {};
}

Status Scanner::scan_markup() {
  if (at_markup("<!--")) {
    return scan_comment();
  }
  if (at_markup("<![CDATA[")) {
    return scan_cdata();
  }
  if (at_markup("<!DOCTYPE")) {
    return fault(position_, "DOCTYPE is refused: PML documents declare no entities and load nothing");
  }
  if (at_markup("<?")) {
    return scan_instruction();
  }
  if (at_markup("</")) {
    return scan_end_tag();
  }
  return scan_start_tag();
}

Status Scanner::scan_comment() {
  const std::size_t begin = position_;
  const std::size_t dashes = source_.find("--", begin + 4);
  if (dashes == std::string_view::npos) {
    return fault(begin, "the comment is never closed");
  }
  if (source_.substr(dashes, 3) != "-->") {
    return fault(dashes, "'--' must not stand inside a comment");
  }
  position_ = dashes + 3;
  return count_node(begin);
}

Status Scanner::scan_cdata() {
  const std::size_t begin = position_;
  if (open_.empty()) {
    return fault(begin, root_seen_ ? "text after the end of the root element" : "text before the root element");
  }
  const std::size_t end = source_.find("]]>", begin);
  if (end == std::string_view::npos) {
    return fault(begin, "the CDATA section is never closed");
  }
  position_ = end + 3;
  return count_node(begin);
}

Status Scanner::scan_instruction() {
  const std::size_t begin = position_;
  std::size_t at = begin + 2;
  const std::string_view target = read_name(at);
  const std::size_t end = source_.find("?>", at);
  if (target.empty() || end == std::string_view::npos || (end != at && !is_space(source_[at]))) {
    return fault(begin, "malformed processing instruction; " + std::string(kEscapeHint));
  }
  std::string lower(target);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "xml") {
    if (begin != 0 || target != "xml") {
      return fault(begin, "an XML declaration may only stand at the very start of the document");
    }
    const Status status = check_declaration(source_.substr(at, end - at));
    if (!status.ok()) {
      return status;
    }
  }
  position_ = end + 2;
  return count_node(begin);
}

// PML is UTF-8 whatever its declaration says; one that says otherwise is refused rather than misread.
Status Scanner::check_declaration(std::string_view declaration) {
  const std::size_t key = declaration.find("encoding");
  if (key == std::string_view::npos) {
    return {};
  }
  const std::size_t open = declaration.find_first_of("'\"", key);
  const std::size_t close = open == std::string_view::npos ? open : declaration.find(declaration[open], open + 1);
  std::string name;
  if (close != std::string_view::npos) {
    name = std::string(declaration.substr(open + 1, close - open - 1));
  }
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name != "utf-8" && name != "utf8" && name != "us-ascii") {
    return fault(0, "the document must be UTF-8; its declaration says encoding '" + shown(name) + "'");
  }
  return {};
}

std::string_view Scanner::read_name(std::size_t& at) const {
  const std::size_t begin = at;
  if (at < source_.size() && is_name_start(source_[at])) {
    while (at < source_.size() && is_name_part(source_[at])) {
      ++at;
    }
  }
  return source_.substr(begin, at - begin);
}

bool Scanner::skip_spaces(std::size_t& at) const {
  const std::size_t begin = at;
  while (at < source_.size() && is_space(source_[at])) {
    ++at;
  }
  return at > begin;
}

Status Scanner::scan_start_tag() {
  Tag tag;
  Status status = read_start_tag(tag);
  if (!status.ok()) {
    return status;
  }
  status = check_duplicate_attributes(tag);
  if (!status.ok()) {
    return status;
  }
  position_ = tag.end;
  const Role* role = find_role(tag.name);
  if (role == nullptr) {
    return open_element(tag);
  }
  const std::string name(tag.name);
  if (tag.self_closing) {
    return fault(tag.offset, "<" + name + "/> is not a role tag: write <" + name + "> and </" + name + ">");
  }
  if (!attributes_.empty()) {
    return fault(tag.offset, "the role tag <" + name + "> takes no attributes");
  }
  return add_role_tag(tag.offset, tag.end, *role, false);
}

Status Scanner::read_start_tag(Tag& tag) {
  tag.offset = position_;
  attributes_.clear();
  std::size_t at = position_ + 1;
  tag.name = read_name(at);
  if (tag.name.empty()) {
    return fault(tag.offset, "'<' starts no tag here; " + std::string(kEscapeHint));
  }
  for (;;) {
    const bool spaced = skip_spaces(at);
    if (at >= source_.size()) {
      return fault(tag.offset, "the tag <" + shown(tag.name) + " is never closed; " + std::string(kEscapeHint));
    }
    tag.self_closing = source_.substr(at, 2) == "/>";
    if (tag.self_closing || source_[at] == '>') {
      tag.end = at + (tag.self_closing ? 2 : 1);
      return {};
    }
    if (!spaced) {
      return fault(tag.offset, "malformed tag <" + shown(tag.name) + ">: attributes are separated by spaces; " +
                                   std::string(kEscapeHint));
    }
    Status status = read_attribute(at, tag);
    if (!status.ok()) {
      return status;
    }
  }
}

// Reads name="value" at `at`, and moves `at` past it.
Status Scanner::read_attribute(std::size_t& at, const Tag& tag) {
  const std::size_t begin = at;
  const std::string_view name = read_name(at);
  skip_spaces(at);
  const bool has_value = !name.empty() && at < source_.size() && source_[at] == '=';
  if (has_value) {
    skip_spaces(++at);
  }
  const char quote = has_value && at < source_.size() ? source_[at] : '\0';
  if (quote != '"' && quote != '\'') {
    return fault(tag.offset, "malformed tag <" + shown(tag.name) + ">: an attribute is written name=\"value\"; " +
                                 std::string(kEscapeHint));
  }
  const std::size_t value_begin = at + 1;
  const std::size_t value_end = source_.find(quote, value_begin);
  if (value_end == std::string_view::npos) {
    return fault(tag.offset,
                 "malformed tag <" + shown(tag.name) + ">: the value of '" + shown(name) + "' has no closing quote");
  }
  const std::size_t bracket = source_.substr(value_begin, value_end - value_begin).find('<');
  if (bracket != std::string_view::npos) {
    return fault(value_begin + bracket, "a bare '<' is not allowed in the value of '" + shown(name) +
                                            "': write &lt; (or is a closing quote missing?)");
  }
  at = value_end + 1;
  attributes_.emplace_back(name, begin);
  Status status = count_node(begin);
  return status.ok() ? check_references(value_begin, value_end) : status;
}

Status Scanner::check_duplicate_attributes(const Tag& tag) {
  if (attributes_.size() < 2) {
    return {};
  }
  std::ranges::sort(attributes_);
  const std::pair<std::string_view, std::size_t>* first_repeat = nullptr;
  for (std::size_t i = 1; i < attributes_.size(); ++i) {
    const bool repeats = attributes_[i].first == attributes_[i - 1].first;
    if (repeats && (first_repeat == nullptr || attributes_[i].second < first_repeat->second)) {
      first_repeat = &attributes_[i];
    }
  }
  if (first_repeat == nullptr) {
    return {};
  }
  return fault(first_repeat->second,
               "<" + shown(tag.name) + "> has the attribute '" + shown(first_repeat->first) + "' twice",
               ErrorCode::kDuplicateName);
}

Status Scanner::open_element(const Tag& tag) {
  if (open_.empty() && root_seen_) {
    return fault(tag.offset, "a second root element <" + shown(tag.name) + ">: a document has one");
  }
  if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
    return fault(tag.offset, "elements are nested deeper than " + std::to_string(limits_.max_depth));
  }
  root_seen_ = true;
  if (!tag.self_closing) {
    open_.push_back({tag.name, tag.offset});
  }
  return count_node(tag.offset);
}

Status Scanner::scan_end_tag() {
  const std::size_t begin = position_;
  std::size_t at = begin + 2;
  const std::string_view name = read_name(at);
  skip_spaces(at);
  if (name.empty() || at >= source_.size() || source_[at] != '>') {
    return fault(begin, "malformed end tag; " + std::string(kEscapeHint));
  }
  position_ = at + 1;
  if (const Role* role = find_role(name)) {
    return add_role_tag(begin, position_, *role, true);
  }
  if (open_.empty()) {
    return fault(begin, "</" + shown(name) + "> closes nothing: no element is open");
  }
  const OpenElement& element = open_.back();
  if (element.name != name) {
    return fault(begin, "</" + shown(name) + "> where </" + shown(element.name) + "> must come first: <" +
                            shown(element.name) + "> was opened at line " + line_of(element.offset) +
                            " (if that '<' is text, write &lt;)");
  }
  open_.pop_back();
  return {};
}

Status Scanner::add_role_tag(std::size_t offset, std::size_t end, Role role, bool closing) {
  if (open_.empty()) {
    return fault(offset, "the role tag " + spelling({role, closing, {}}) + " stands outside the root element");
  }
  // "<user>" becomes "<?r ?>": the shortest role tag is just long enough.
  const std::size_t length = end - offset;
  result_.text.replace(offset, length, "<?r" + std::string(length - 5, ' ') + "?>");
  result_.role_tags.push_back({offset, role, closing});
  return count_node(offset);
}

}  // namespace

Result<ScannedSource> scan(std::string_view source, const SourceMap& map, const Limits& limits) {
  return Scanner(source, map, limits).run();
}

}  // namespace promptcached::pml
