// Json: the documents we write. Field order is the order of insertion, so that answers read as docs/api.md shows them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/http_types.h"

namespace promptcached::api {

using Json = nlohmann::ordered_json;

// One line. Text that is not valid UTF-8 shows as U+FFFD: a document always reaches the client as valid JSON.
std::string to_text(const Json& json);

// A float as the shortest number that is as exact as a float is: -0.41, not -0.4099999964237213. Null when not finite.
Json json_number(float value);

// An answer of 200 with this document.
HttpResponse json_response(const Json& json);

// Milliseconds with microseconds as the last digits.
Json json_milliseconds(double milliseconds);

}  // namespace promptcached::api
