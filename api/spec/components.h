// What /openapi.json's operations refer to: the documents of answers, and what of requests has a form of its own.
#pragma once

#include "api/json.h"

namespace promptcached::api {

// The value of `components`, without what is made from readers' fields.
Json openapi_components();

// The words and codes of an error's status, as docs/api.md has them.
std::string_view status_words(int status);

}  // namespace promptcached::api
