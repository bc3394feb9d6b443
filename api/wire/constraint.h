// The fields that say what an answer must look like, as all routes that generate share them.
#pragma once

#include <optional>
#include <string_view>

#include "api/json_reader.h"
#include "core/guide/constraint.h"

namespace promptcached::api {

// Which fields a route knows beside response_format, and how it takes unknown members of that.
enum class ConstraintFields {
  kOwn,     // none; unknown members are refused
  kOpenAi,  // guided_json and the like, structured_outputs; unknown members are ignored
};

// None, or one: a second is refused, naming both. `body`: the text of the object that `in` reads, for a schema's
// members in their own order, which is that of the answer.
std::optional<guide::Constraint> read_constraint(ObjectReader& in, std::string_view body, ConstraintFields fields);

}  // namespace promptcached::api
