#include "api/wire/generate.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "api/json_reader.h"
#include "api/media_type.h"
#include "api/query.h"
#include "api/wire/constraint.h"
#include "api/wire/fidelity.h"
#include "api/wire/sampling.h"

namespace promptcached::api {
namespace {

void read_cache(ObjectReader& in, bool& bypass) {
  const std::string cache = in.text("cache").value_or("use");
  if (cache != "use" && cache != "bypass") {
    in.refuse("cache", "must be 'use' or 'bypass'");
  }
  bypass = cache == "bypass";
}

// `body`: the text of the object, as far as its members' order counts.
Status read_fields(ObjectReader& in, std::string_view body, WireGenerate& wire) {
  if (auto prompt = in.text("prompt")) {
    wire.prompt = std::move(*prompt);
  } else {
    in.refuse("prompt", "is required: a PML prompt");
  }
  if (const auto max_tokens = in.integer("max_tokens", 1, std::numeric_limits<std::int32_t>::max())) {
    wire.max_tokens = static_cast<std::int32_t>(*max_tokens);
  }
  read_sampling(in, wire.sampling);
  read_stop(in, wire.stop);
  set_if_given(wire.top_logprobs, in.integer("logprobs", 0, kMaxTopLogprobs));
  set_if_given(wire.stream, in.boolean("stream"));
  set_if_given(wire.ignore_eos, in.boolean("ignore_eos"));
  set_if_given(wire.add_generation_prompt, in.boolean("add_generation_prompt"));
  set_if_given(wire.echo, in.boolean("echo"));
  wire.fidelity = read_fidelity(in);
  read_cache(in, wire.bypass_cache);
  wire.constraint = read_constraint(in, body, ConstraintFields::kOwn);
  return in.finish();
}

Result<WireGenerate> read_fields(InputJson& object, std::string_view body) {
  ObjectReader in(object);
  WireGenerate wire;
  if (Status status = read_fields(in, body, wire); !status) {
    return status.error();
  }
  return wire;
}

Result<WireGenerate> read_pml(HttpRequest& request) {
  Result<InputJson> options = json_from_query(request.query, {"prompt", "fidelity", "cache"}, {"stop"});
  if (!options) {
    return options.error();
  }
  if (options->contains("prompt")) {
    return make_error(ErrorCode::kInvalidField, "the prompt is the body here, not part of the query string", "prompt");
  }
  (*options)["prompt"] = std::move(request.body);
  const auto format = std::find_if(request.query.begin(), request.query.end(),
                                   [](const auto& option) { return option.first == "response_format"; });
  return read_fields(*options, format == request.query.end() ? "" : "{\"response_format\":" + format->second + "}");
}

Result<WireGenerate> read_json(HttpRequest& request) {
  if (!request.query.empty()) {
    return make_error(ErrorCode::kInvalidField,
                      "options stand in the JSON body; a query string goes with a PML body alone");
  }
  Result<InputJson> object = parse_json_object(request.body);
  if (!object) {
    return object.error();
  }
  return read_fields(*object, request.body);
}

}  // namespace

JsonFields generate_fields() {
  WireGenerate wire;
  return fields_asked_for([&](ObjectReader& in) { (void)read_fields(in, {}, wire); });
}

Result<WireGenerate> read_generate(HttpRequest& request) {
  const Result<BodyKind> kind = body_kind(request);
  if (!kind) {
    return kind.error();
  }
  return *kind == BodyKind::kJson ? read_json(request) : read_pml(request);
}

}  // namespace promptcached::api
