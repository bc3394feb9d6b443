#include "api/wire/ordered.h"

#include <algorithm>
#include <string>
#include <utility>

namespace promptcached::api {

bool has_large_object(const InputJson& value) {
  if (value.is_object() && value.size() > kMaxOrderedMembers) {
    return true;
  }
  return (value.is_object() || value.is_array()) && std::any_of(value.begin(), value.end(), has_large_object);
}

OrderedJson ordered_member(std::string_view body, std::string_view name) {
  const auto keep = [name](int depth, OrderedJson::parse_event_t event, OrderedJson& parsed) {
    return depth != 1 || event != OrderedJson::parse_event_t::key || parsed == name;
  };
  OrderedJson document = OrderedJson::parse(body, keep, /*allow_exceptions=*/false);
  const auto member = document.is_object() ? document.find(std::string(name)) : document.end();
  return member == document.end() ? OrderedJson(nullptr) : std::move(*member);
}

}  // namespace promptcached::api
