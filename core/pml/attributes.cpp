#include "core/pml/attributes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/nearest_name.h"

namespace promptcached::pml {
namespace {

Error bad_value(const Element& element, std::string_view name, const std::string& value, std::string_view expected) {
  return make_error_at(ErrorCode::kInvalidPml, element.location,
                       "the value '" + shown(value) + "' of '" + std::string(name) + "' in <" + element.name +
                           "> is not " + std::string(expected));
}

// Attributes we know and refuse for a reason of their own.
std::optional<std::string> reason_to_refuse(std::string_view name) {
  if (name == "src") {
    return "'src' is refused: a schema never reads files on the server; put the text into the document";
  }
  if (name == "position") {
    return "'position' (floating modules) is not supported yet: leave it out, every module has a fixed place";
  }
  return std::nullopt;
}

// One of two words.
Result<bool> read_choice(const Element& element, std::string_view name, std::string_view yes, std::string_view no,
                         bool otherwise) {
  const std::string* value = find_attribute(element, name);
  if (value == nullptr) {
    return otherwise;
  }
  if (*value != yes && *value != no) {
    return bad_value(element, name, *value, "'" + std::string(yes) + "' or '" + std::string(no) + "'");
  }
  return *value == yes;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

Status check_attributes(const Element& element, std::span<const std::string_view> allowed) {
  for (const Attribute& attribute : element.attributes) {
    if (std::ranges::find(allowed, attribute.name) != allowed.end()) {
      continue;
    }
    if (const auto reason = reason_to_refuse(attribute.name)) {
      return make_error_at(ErrorCode::kInvalidPml, element.location, "<" + element.name + ">: " + *reason);
    }
    const std::vector<std::string> known(allowed.begin(), allowed.end());
    return make_error_at(ErrorCode::kInvalidPml, element.location,
                         "<" + element.name + "> has no attribute '" + shown(attribute.name) + "'" +
                             did_you_mean(attribute.name, known));
  }
  return {};
}

Result<bool> read_boolean(const Element& element, std::string_view name, bool otherwise) {
  return read_choice(element, name, "true", "false", otherwise);
}

Result<bool> read_preserve_space(const Element& element, bool otherwise) {
  return read_choice(element, "xml:space", "preserve", "default", otherwise);
}

Result<bool> read_special_tokens(const Element& element, bool otherwise) {
  return read_choice(element, "special-tokens", "allow", "deny", otherwise);
}

Result<RetentionPolicy> read_retention(const Element& element, const RetentionPolicy& otherwise) {
  RetentionPolicy policy = otherwise;
  const Result<bool> pin = read_boolean(element, "pin", otherwise.pin);
  if (!pin.ok()) {
    return pin.error();
  }
  policy.pin = *pin;
  if (const std::string* value = find_attribute(element, "ttl")) {
    const auto seconds = parse_number<double>(*value);
    if (!seconds || !std::isfinite(*seconds) || *seconds <= 0) {
      return bad_value(element, "ttl", *value, "a number of seconds greater than 0");
    }
    policy.ttl_seconds = *seconds;
  }
  if (const std::string* value = find_attribute(element, "priority")) {
    const auto priority = parse_number<int>(*value);
    if (!priority) {
      return bad_value(element, "priority", *value, "a whole number");
    }
    policy.priority = *priority;
  }
  return policy;
}

Result<AttentionMode> read_attention(const Element& element) {
  const std::string* value = find_attribute(element, "attention");
  if (value == nullptr) {
    return AttentionMode::kRooted;
  }
  for (const AttentionMode mode : {AttentionMode::kRooted, AttentionMode::kIsolated, AttentionMode::kContextual}) {
    if (*value == to_string(mode)) {
      return mode;
    }
  }
  return bad_value(element, "attention", *value,
                   "'rooted', 'isolated' or 'contextual'" + did_you_mean(*value, {"rooted", "isolated", "contextual"}));
}

Result<WhitespaceRule> read_whitespace_rule(const Element& element) {
  const Result<bool> edges = read_choice(element, "whitespace", "edges", "reference", true);
  if (!edges.ok()) {
    return edges.error();
  }
  return *edges ? WhitespaceRule::kEdges : WhitespaceRule::kReference;
}

std::optional<std::int32_t> parse_length(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  const bool digits = !text.empty() && text.size() <= kMostDigits &&
                      std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return digits ? parse_number<std::int32_t>(text) : std::nullopt;
}

}  // namespace promptcached::pml
