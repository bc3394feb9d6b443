#include "api/query.h"

#include <algorithm>
#include <string>

#include "core/base/utf8.h"

namespace promptcached::api {
namespace {

bool listed(std::initializer_list<std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// `null` is a text like any other: whoever means nothing says nothing.
InputJson value_of(const std::string& text) {
  InputJson value = InputJson::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() || value.is_null() ? InputJson(text) : value;
}

}  // namespace

Result<InputJson> json_from_query(const NameValues& query, std::initializer_list<std::string_view> texts,
                                  std::initializer_list<std::string_view> lists) {
  InputJson object = InputJson::object();
  for (const auto& [name, text] : query) {
    if (!is_valid_utf8(name) || !is_valid_utf8(text)) {
      return make_error(ErrorCode::kInvalidField, "the query string is not valid UTF-8");
    }
    if (listed(lists, name)) {
      object[name].push_back(text);
      continue;
    }
    if (object.contains(name)) {
      return make_error(ErrorCode::kInvalidField, name.substr(0, 80) + " is given twice", name.substr(0, 80));
    }
    object[name] = listed(texts, name) ? InputJson(text) : value_of(text);
  }
  return object;
}

}  // namespace promptcached::api
