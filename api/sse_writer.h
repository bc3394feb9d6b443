// SseWriter: the one place that writes server-sent events.
#pragma once

#include <string>
#include <string_view>

#include "api/http_types.h"
#include "api/json.h"

namespace promptcached::api {

inline constexpr std::string_view kEventStream = "text/event-stream";

// The headers of a stream: not to be cached, nor held back by nginx.
NameValues event_stream_headers();

// Collects events until flush(), so that what is ready at one time leaves in one packet.
class SseWriter final {
 public:
  explicit SseWriter(BodyWriter& out) : out_(out) {}

  // `event` is a plain word; `data` takes one line, whatever it holds.
  void event(std::string_view event, const Json& data);
  // Without a name, as OpenAI's streams are; `data` may be any text of one line.
  void data(std::string_view data);
  // Keeps proxies from closing a silent connection; clients ignore it.
  void comment(std::string_view text);
  // False when the client has gone.
  bool flush();

 private:
  BodyWriter& out_;
  std::string pending_;
};

}  // namespace promptcached::api
