#include "api/openai/fields.h"

#include <limits>
#include <utility>

#include "api/media_type.h"
#include "api/wire/constraint.h"
#include "api/wire/sampling.h"

namespace promptcached::api {
namespace {

void read_stream_options(ObjectReader& in, OpenAiFields& fields) {
  InputJson* const object = in.object("stream_options");
  if (object == nullptr) {
    return;
  }
  if (!fields.stream) {
    in.refuse("stream_options", "goes with stream: true alone");
    return;
  }
  ObjectReader options(*object, "stream_options.");
  set_if_given(fields.include_usage, options.boolean("include_usage"));
  if (Status status = options.finish_leniently(); !status) {
    in.refuse(status.error());
  }
}

}  // namespace

Result<InputJson> read_json_body(const HttpRequest& request) {
  if (Status status = require_json(request); !status) {
    return status.error();
  }
  return parse_json_object(request.body);
}

std::optional<std::int32_t> read_token_count(ObjectReader& in, std::string_view name) {
  const auto count = in.integer(name, 1, std::numeric_limits<std::int32_t>::max());
  return count ? std::optional(static_cast<std::int32_t>(*count)) : std::nullopt;
}

void read_common_fields(ObjectReader& in, std::string_view body, OpenAiFields& fields) {
  set_if_given(fields.model, in.text("model"));
  read_sampling(in, fields.sampling);
  read_stop(in, fields.stop);
  set_if_given(fields.n, in.integer("n", 1, kMaxChoices));
  set_if_given(fields.stream, in.boolean("stream"));
  read_stream_options(in, fields);
  fields.constraint = read_constraint(in, body, ConstraintFields::kOpenAi);
  set_if_given(fields.ignore_eos, in.boolean("ignore_eos"));
}

}  // namespace promptcached::api
