// Attributes of PML elements, checked and converted. All errors are kInvalidPml at the element.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/pml/document.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

// Refuses attributes that are not `allowed`, saying why for those that other systems know.
Status check_attributes(const Element& element, std::span<const std::string_view> allowed);

// Each returns `otherwise` when the attribute is absent.
Result<bool> read_boolean(const Element& element, std::string_view name, bool otherwise);
Result<bool> read_preserve_space(const Element& element, bool otherwise);                          // xml:space
Result<bool> read_special_tokens(const Element& element, bool otherwise);                          // special-tokens
Result<RetentionPolicy> read_retention(const Element& element, const RetentionPolicy& otherwise);  // pin, ttl, priority
Result<AttentionMode> read_attention(const Element& element);
Result<WhitespaceRule> read_whitespace_rule(const Element& element);

// A count of tokens from 0 to 999,999,999; nullopt for anything else.
std::optional<std::int32_t> parse_length(std::string_view text);

}  // namespace promptcached::pml
