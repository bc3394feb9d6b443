#include "api/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/nearest_name.h"
#include "core/base/utf8.h"

namespace promptcached::api {
namespace {

using Kind = JsonField::Kind;

// Line and column, in characters, of a byte of `text` (which is valid UTF-8 up to there).
SourceLocation locate(std::string_view text, std::size_t byte) {
  SourceLocation location{1, 1};
  for (const char c : text.substr(0, std::min(byte, text.size()))) {
    if (c == '\n') {
      ++location.line;
      location.column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      ++location.column;
    }
  }
  return location;
}

// A client's name as a message may show it: names can be megabytes long.
std::string shown_name(std::string_view name) {
  constexpr std::size_t kMax = 80;
  if (name.size() <= kMax) {
    return std::string(name);
  }
  std::size_t end = kMax;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(name.substr(0, end)) + "…";
}

// Builds the document while it is parsed, so that limits and duplicate keys are seen as soon as they come.
class DocumentBuilder final : public nlohmann::json_sax<InputJson> {
 public:
  DocumentBuilder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(InputJson::object()); }
  bool start_array(std::size_t) override { return open(InputJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.size() == 1) {
      field_ = shown_name(name);
    }
    if (open_.back()->contains(name)) {
      return fail("the field '" + shown_name(name) + "' is given twice");
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& reason) override {
    constexpr int kNumberOverflow = 406;  // nlohmann's out_of_range.406
    if (reason.id == kNumberOverflow) {
      return fail("a number is out of range");
    }
    // The library's own words quote the text, which may hold anything. `position` counts the offending byte.
    const SourceLocation at = locate(text_, position == 0 ? 0 : position - 1);
    return fail("not valid JSON at line " + std::to_string(at.line) + ", column " + std::to_string(at.column));
  }

  Result<InputJson> take() {
    if (error_) {
      return *error_;
    }
    return std::move(root_);
  }

 private:
  bool fail(std::string message) {
    if (!error_) {
      if (!field_.empty()) {
        message += " (in or after the field '" + field_ + "')";
      }
      error_ = make_error(ErrorCode::kInvalidJson, std::move(message), field_);
    }
    return false;
  }

  bool open(InputJson value) {
    if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      return fail("nested more than " + std::to_string(limits_.max_depth) + " deep");
    }
    InputJson* added = insert(std::move(value));
    if (added == nullptr) {
      return false;
    }
    open_.push_back(added);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  bool add(InputJson value) { return insert(std::move(value)) != nullptr; }

  InputJson* insert(InputJson value) {
    if (++values_ > limits_.max_values) {
      fail("more than " + std::to_string(limits_.max_values) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    InputJson& parent = *open_.back();
    if (parent.is_array()) {
      // The parent's children are complete, so moving them when it grows leaves no pointer behind.
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  std::string_view text_;
  const JsonLimits& limits_;
  InputJson root_;
  std::vector<InputJson*> open_;  // the containers around the current value, outermost first
  std::string key_;
  std::string field_;  // the top-level field being read
  std::size_t values_ = 0;
  std::optional<Error> error_;
};

// 2, 0.5, 0.00001: as a person would write it.
std::string show(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::string describe(const NumberRange& range) {
  const bool open_ended = range.max >= std::numeric_limits<float>::max();
  if (range.above_min) {
    return "a number above " + show(range.min) + (open_ended ? "" : " and up to " + show(range.max));
  }
  return open_ended ? "a number from " + show(range.min) + " up"
                    : "a number from " + show(range.min) + " to " + show(range.max);
}

}  // namespace

std::optional<std::int64_t> integer_value(const InputJson& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
               ? std::optional(static_cast<std::int64_t>(number))
               : std::nullopt;
  }
  if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  }
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double no longer holds every integer
    if (number == std::floor(number) && std::abs(number) <= kExact) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

Result<InputJson> parse_json_object(std::string_view text, const JsonLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return make_error(ErrorCode::kInvalidJson, "the body is empty; it must be a JSON object");
  }
  if (const auto bad = find_invalid_utf8(text)) {
    return make_error(ErrorCode::kInvalidJson, "the body is not valid UTF-8 at byte " + std::to_string(*bad));
  }
  DocumentBuilder builder(text, limits);
  InputJson::sax_parse(text.data(), text.data() + text.size(), &builder);
  Result<InputJson> document = builder.take();
  if (document && !document->is_object()) {
    return make_error(ErrorCode::kInvalidJson, "the body must be a JSON object");
  }
  return document;
}

ObjectReader::ObjectReader(InputJson& object, std::string path) : object_(object), path_(std::move(path)) {}

InputJson* ObjectReader::find(JsonField field) {
  asked_for_.fields.push_back(std::move(field));
  const auto it = object_.find(asked_for_.fields.back().name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ObjectReader::is_null(std::string_view name) const {
  const auto it = object_.find(std::string(name));
  return it != object_.end() && it->is_null();
}

std::optional<std::string> ObjectReader::text(std::string_view name) {
  InputJson* value = find({.name = std::string(name), .kind = Kind::kText});
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    refuse(name, "must be a string");
    return std::nullopt;
  }
  return std::move(value->get_ref<std::string&>());
}

std::optional<bool> ObjectReader::boolean(std::string_view name) {
  const InputJson* value = find({.name = std::string(name), .kind = Kind::kBoolean});
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_boolean()) {
    refuse(name, "must be true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<double> ObjectReader::number(std::string_view name, const NumberRange& range) {
  const InputJson* value = find({.name = std::string(name), .kind = Kind::kNumber, .range = range});
  if (value == nullptr) {
    return std::nullopt;
  }
  const double number = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  const bool inside = number <= range.max && (range.above_min ? number > range.min : number >= range.min);
  if (!inside) {  // NaN is not inside
    refuse(name, "must be " + describe(range));
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> ObjectReader::integer(std::string_view name, std::int64_t min, std::int64_t max) {
  const NumberRange range{.min = static_cast<double>(min), .max = static_cast<double>(max)};
  const InputJson* value = find({.name = std::string(name), .kind = Kind::kInteger, .range = range});
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> number = integer_value(*value);
  if (!number || *number < min || *number > max) {
    refuse(name, "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
    return std::nullopt;
  }
  return number;
}

std::optional<std::uint64_t> ObjectReader::seed(std::string_view name) {
  const InputJson* value = find({.name = std::string(name), .kind = Kind::kSeed});
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->is_number_unsigned()) {
    return value->get<std::uint64_t>();
  }
  const std::optional<std::int64_t> number = integer_value(*value);
  if (!number) {
    refuse(name, "must be a 64-bit integer");
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(*number);
}

std::optional<std::vector<std::string>> ObjectReader::texts(std::string_view name, std::size_t max_count) {
  InputJson* value = find({.name = std::string(name), .kind = Kind::kTexts, .max_count = max_count});
  if (value == nullptr) {
    return std::nullopt;
  }
  std::vector<std::string> texts;
  if (value->is_string()) {
    texts.push_back(std::move(value->get_ref<std::string&>()));
    return texts;
  }
  const bool list = value->is_array() &&
                    std::all_of(value->begin(), value->end(), [](const InputJson& item) { return item.is_string(); });
  if (!list || value->size() > max_count) {
    refuse(name, "must be a list of up to " + std::to_string(max_count) + " strings");
    return std::nullopt;
  }
  for (InputJson& item : *value) {
    texts.push_back(std::move(item.get_ref<std::string&>()));
  }
  return texts;
}

InputJson* ObjectReader::object(std::string_view name) {
  InputJson* value = find({.name = std::string(name), .kind = Kind::kObject});
  if (value != nullptr && !value->is_object()) {
    refuse(name, "must be an object");
    return nullptr;
  }
  return value;
}

InputJson* ObjectReader::list(std::string_view name) {
  InputJson* value = find({.name = std::string(name), .kind = Kind::kList});
  if (value != nullptr && !value->is_array()) {
    refuse(name, "must be a list");
    return nullptr;
  }
  return value;
}

InputJson* ObjectReader::value(std::string_view name) { return find({.name = std::string(name)}); }

void ObjectReader::refuse(std::string_view name, const std::string& message) {
  for (JsonField& asked : asked_for_.fields) {
    asked.required = asked.required || (asked.name == name && !object_.contains(asked.name));
  }
  const std::string field = path_ + std::string(name);
  refuse(make_error(ErrorCode::kInvalidField, field + " " + message, field));
}

void ObjectReader::refuse(Error error) {
  if (!error_) {
    error_ = std::move(error);
  }
}

Status ObjectReader::finish_leniently() const { return error_ ? Status(*error_) : Status(); }

Status ObjectReader::finish() {
  asked_for_.strict = true;
  if (error_) {
    return *error_;
  }
  for (const auto& [name, value] : object_.items()) {
    if (std::ranges::find(asked_for_.fields, name, &JsonField::name) == asked_for_.fields.end()) {
      std::vector<std::string> known;
      for (const JsonField& field : asked_for_.fields) {
        known.push_back(field.name);
      }
      const std::string field = path_ + shown_name(name);
      return make_error(ErrorCode::kUnknownField,
                        "unknown field '" + field + "'" + did_you_mean(shown_name(name), known), field);
    }
  }
  return {};
}

JsonFields fields_asked_for(const std::function<void(ObjectReader&)>& read) {
  InputJson nothing = InputJson::object();
  ObjectReader in(nothing);
  read(in);
  return in.asked_for();
}

}  // namespace promptcached::api
