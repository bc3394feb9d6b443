#include "core/model/config_fields.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace promptcached::model {
namespace {

using Json = nlohmann::json;

// Sizes stay far below this, so that products of three of them fit 63 bits.
constexpr std::uint64_t kLargest = 1U << 30U;

bool is_positive(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
}

}  // namespace

void Fields::refuse(const std::string& field, const std::string& why) const {
  throw std::runtime_error(where_ + ": field '" + field + "' " + why);
}

const Json* Fields::find(const std::string& field) const {
  const auto found = object_->find(field);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::int64_t Fields::integer(const std::string& field, std::optional<std::int64_t> fallback, std::int64_t least) const {
  const Json* value = find(field);
  if (value == nullptr) {
    if (!fallback) {
      refuse(field, "is missing");
    }
    return *fallback;
  }
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > kLargest)) {
    refuse(field, "must be an integer, not " + value->dump());
  }
  const auto number = value->get<std::int64_t>();
  if (number < least || number > static_cast<std::int64_t>(kLargest)) {
    refuse(field, "is out of range: " + value->dump());
  }
  return number;
}

double Fields::number(const std::string& field, std::optional<double> fallback) const {
  const Json* value = find(field);
  if (value == nullptr) {
    if (!fallback) {
      refuse(field, "is missing");
    }
    return *fallback;
  }
  if (!is_positive(*value)) {
    refuse(field, "must be a positive number, not " + value->dump());
  }
  return value->get<double>();
}

std::vector<double> Fields::numbers(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr) {
    refuse(field, "is missing");
  }
  if (!value->is_array()) {
    refuse(field, "must be a list of numbers, not " + value->dump());
  }
  std::vector<double> numbers;
  for (const Json& item : *value) {
    if (!is_positive(item)) {
      refuse(field, "must hold positive numbers, not " + item.dump());
    }
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

bool Fields::boolean(const std::string& field, bool fallback) const {
  const Json* value = find(field);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_boolean()) {
    refuse(field, "must be true or false, not " + value->dump());
  }
  return value->get<bool>();
}

std::string Fields::text(const std::string& field, const std::string& fallback) const {
  const Json* value = find(field);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_string()) {
    refuse(field, "must be a string, not " + value->dump());
  }
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(const std::string& field) const {
  std::vector<std::string> texts;
  const Json* value = find(field);
  if (value == nullptr) {
    return texts;
  }
  if (!value->is_array()) {
    refuse(field, "must be a list of strings, not " + value->dump());
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      refuse(field, "must hold strings, not " + item.dump());
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::optional<Fields> Fields::object(const std::string& field) const {
  const Json* value = find(field);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_object()) {
    refuse(field, "must be an object, not " + value->dump());
  }
  return Fields(*value, where_ + ": in '" + field + "'");
}

std::vector<std::int32_t> Fields::token_ids(const std::string& field) const {
  const Json* value = find(field);
  std::vector<std::int32_t> tokens;
  if (value == nullptr) {
    return tokens;
  }
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& token : list) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
        token.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
      refuse(field, "must be a token id or a list of them, not " + value->dump());
    }
    tokens.push_back(token.get<std::int32_t>());
  }
  return tokens;
}

void Fields::require(const std::string& field, const Json& value) const {
  const Json* found = find(field);
  if (found != nullptr && *found != value) {
    refuse(field, "is " + found->dump() + ", which is not supported; known: " + value.dump());
  }
}

Json parse_json_object(const std::string& text, const std::string& where) {
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.is_object()) {
    throw std::runtime_error(where + " is not a JSON object");
  }
  return document;
}

}  // namespace promptcached::model
