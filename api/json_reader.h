// Reading JSON that strangers sent: strictly, and with errors that name the field.
//
//   Result<InputJson> document = parse_json_object(body);
//   ObjectReader in(*document);
//   wire.prompt = in.text("prompt");
//   wire.temperature = in.number("temperature", {.min = 0, .max = 2});
//   if (Status status = in.finish(); !status) ...
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace promptcached::api {

using InputJson = nlohmann::json;

struct JsonLimits {
  int max_depth = 64;
  std::size_t max_values = 200'000;  // a document of a few megabytes can otherwise grow to hundreds in memory
};

// The object that `text` holds. Error kInvalidJson with the place and, where one is known, the field: malformed JSON,
// invalid UTF-8, lone surrogates, a key given twice, NaN and infinities, numbers beyond a double, anything but an
// object at the top, nesting or size beyond the limits. Messages hold nothing of the text but field names.
Result<InputJson> parse_json_object(std::string_view text, const JsonLimits& limits = {});

// The integer that a JSON number stands for: 5, and 5.0 as well, which some clients send.
std::optional<std::int64_t> integer_value(const InputJson& value);

struct NumberRange {
  double min = 0;
  double max = 0;
  bool above_min = false;  // min itself is excluded
};

// What a field was asked to be: its kind, and its limits where the kind has some.
struct JsonField {
  enum class Kind { kText, kBoolean, kNumber, kInteger, kSeed, kTexts, kObject, kList, kAny };

  std::string name;
  Kind kind = Kind::kAny;
  NumberRange range = {};     // of a number or an integer
  std::size_t max_count = 0;  // of a list of texts
  bool required = false;      // it was refused for not being there
};

struct JsonFields {
  std::vector<JsonField> fields;  // in the order in which they were asked for
  bool strict = false;            // any other is refused
};

// Takes typed fields out of an object. Null means absent. The first fault is kept and told by finish(); values read
// after it are of no use.
class ObjectReader final {
 public:
  // `path` stands before field names in messages ("modules.miami."). The object must outlive the reader.
  explicit ObjectReader(InputJson& object, std::string path = {});

  std::optional<std::string> text(std::string_view name);  // moved out
  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, const NumberRange& range);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  std::optional<std::uint64_t> seed(std::string_view name);  // any 64-bit integer, signed or not
  // A list of strings; one string stands for a list of one.
  std::optional<std::vector<std::string>> texts(std::string_view name, std::size_t max_count);
  InputJson* object(std::string_view name);  // nullptr when absent
  InputJson* list(std::string_view name);    // the same for an array
  InputJson* value(std::string_view name);   // of any kind
  // True when the field is there and null, which some fields tell from absent.
  bool is_null(std::string_view name) const;

  // Records a fault found by the caller, about a field.
  void refuse(std::string_view name, const std::string& message);
  void refuse(Error error);

  // The first fault: a bad value, or a field that nobody asked for (kUnknownField, with the nearest known name).
  Status finish();
  // The first bad value; fields that nobody asked for are ignored.
  Status finish_leniently() const;

  // What has been asked for until now: after a reading, all that the object may hold.
  const JsonFields& asked_for() const { return asked_for_; }

 private:
  InputJson* find(JsonField field);

  InputJson& object_;
  std::string path_;
  JsonFields asked_for_;
  std::optional<Error> error_;
};

// What `read` asks of any object, told by letting it read an empty one: so that a description of the fields is made of
// the very calls that read them. Fields of inner objects are not asked for then.
JsonFields fields_asked_for(const std::function<void(ObjectReader&)>& read);

}  // namespace promptcached::api
