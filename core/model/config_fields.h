// Fields of config.json, read with refusals that name file and field. No torch here.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace promptcached::model {

// A JSON object of a file. Throws std::runtime_error, naming file and field, for what is missing or mistyped. A field
// that is null counts as absent, as it does to transformers.
class Fields final {
 public:
  Fields(const nlohmann::json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const;

  const nlohmann::json* find(const std::string& field) const;
  bool has(const std::string& field) const { return object_->contains(field); }  // null too

  std::int64_t integer(const std::string& field, std::optional<std::int64_t> fallback = std::nullopt,
                       std::int64_t least = 1) const;
  double number(const std::string& field, std::optional<double> fallback = std::nullopt) const;  // positive
  std::vector<double> numbers(const std::string& field) const;                                   // all positive
  bool boolean(const std::string& field, bool fallback) const;
  std::string text(const std::string& field, const std::string& fallback) const;
  std::vector<std::string> texts(const std::string& field) const;  // empty when absent
  std::optional<Fields> object(const std::string& field) const;
  // A token id, a list of ids, or nothing.
  std::vector<std::int32_t> token_ids(const std::string& field) const;

  // Refuses the field unless it is absent or has this value: for switches whose other side is not supported.
  void require(const std::string& field, const nlohmann::json& value) const;

 private:
  const nlohmann::json* object_;
  std::string where_;
};

// Throws std::runtime_error naming the document when `text` is no JSON object.
nlohmann::json parse_json_object(const std::string& text, const std::string& where);

}  // namespace promptcached::model
