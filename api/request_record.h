// RequestRecord: what is counted and logged of one request, once, when its response has been sent.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/http_types.h"
#include "api/service.h"
#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/engine/token_stream.h"

namespace promptcached::api {

// Used by one thread at a time.
class RequestRecord final {
 public:
  RequestRecord(const Service& service, const HttpRequest& request);

  // The label of the route that answers; "other" until then. Quiet routes (probes) are logged at debug level.
  void set_route(std::string_view label, bool quiet);
  // The request's last byte has arrived: where durations start.
  void set_arrival(Clock::time_point arrival) { arrival_ = arrival; }
  // Wire form to validated request took this long.
  void set_parse_seconds(double seconds) { parse_seconds_ = seconds; }
  // What the prompt was made of: the slowest tier labels time_to_first_token_seconds.
  void note_start(const engine::StartEvent& start);
  void note_end(const engine::DoneEvent& done);
  // The first generated text is handed on now; later calls change nothing.
  void note_first_text();
  void add_write_seconds(double seconds) { write_seconds_ += seconds; }
  void set_failed(ErrorCode code) { failure_ = code; }
  const std::string& request_id() const { return request_id_; }

  // The last call: counts and logs. Not delivered: the client had gone. Failed and cancelled requests add nothing to
  // time_to_first_token_seconds, which is why that is observed here and not with the first text.
  void finish(int status, bool delivered);

 private:
  void count(const Metrics& metrics, double seconds) const;

  const Service& service_;
  const std::string request_id_;
  const std::string method_;
  const std::string remote_address_;
  Clock::time_point arrival_;
  std::string_view route_ = "other";
  bool quiet_ = false;
  CacheLabel cache_label_ = CacheLabel::kNone;
  std::optional<ErrorCode> failure_;
  std::optional<double> parse_seconds_;
  std::optional<double> first_text_seconds_;
  double write_seconds_ = 0;
};

}  // namespace promptcached::api
