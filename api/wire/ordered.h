// Parts of a document in the order in which the client wrote them: InputJson sorts its members.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "api/json_reader.h"

namespace promptcached::api {

using OrderedJson = nlohmann::ordered_json;

// Objects that keep their order are searched from the front, so they must not be long.
inline constexpr std::size_t kMaxOrderedMembers = 1000;
bool has_large_object(const InputJson& value);

// The member `name` of the object that `body` holds; null when there is none. `body` has been read before, and
// !has_large_object(the member).
OrderedJson ordered_member(std::string_view body, std::string_view name);

}  // namespace promptcached::api
