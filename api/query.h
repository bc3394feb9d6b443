// Query strings: the same options as in JSON, in another spelling.
#pragma once

#include <initializer_list>
#include <string_view>

#include "api/http_types.h"
#include "api/json_reader.h"
#include "core/base/status.h"

namespace promptcached::api {

// The JSON object that says what `query` says, for an ObjectReader to check: numbers, true, false and objects are
// recognised by their JSON spelling, fields named in `texts` stay text. A field named in `lists` may be repeated and
// becomes a list of strings; any other given twice is refused.
Result<InputJson> json_from_query(const NameValues& query, std::initializer_list<std::string_view> texts,
                                  std::initializer_list<std::string_view> lists = {});

}  // namespace promptcached::api
