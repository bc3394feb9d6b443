#include "api/json.h"

#include <charconv>
#include <cmath>

namespace promptcached::api {

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Json json_number(float value) {
  if (!std::isfinite(value)) {
    return nullptr;
  }
  char text[64];
  const auto written = std::to_chars(std::begin(text), std::end(text), value);
  double shortest = value;
  std::from_chars(std::begin(text), written.ptr, shortest);
  return shortest;
}

Json json_milliseconds(double milliseconds) {
  return std::isfinite(milliseconds) ? Json(std::round(milliseconds * 1000.0) / 1000.0) : Json(nullptr);
}

HttpResponse json_response(const Json& json) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = to_text(json);
  return response;
}

}  // namespace promptcached::api
