// From the fields that a reader asks for to what OpenAPI says of them.
#pragma once

#include "api/json.h"
#include "api/json_reader.h"

namespace promptcached::api {

// The JSON Schema of an object with these fields. `details` (a JSON merge patch over its properties) says of them what
// the reader's calls do not: words, defaults, what lists and objects hold; null takes away a field that is never
// accepted.
Json object_schema(const JsonFields& asked, const Json& details);

// The same fields as a list of query parameters.
Json query_parameters(const JsonFields& asked, const Json& details);

}  // namespace promptcached::api
