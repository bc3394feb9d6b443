// AnswerStream: from the engine's events to the client, as server-sent events or as one document.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "api/http_types.h"
#include "api/json.h"
#include "api/request_record.h"
#include "api/routes.h"
#include "api/sse_writer.h"
#include "api/wire/events.h"
#include "core/engine/token_stream.h"

namespace promptcached::api {

class AnswerStream final {
 public:
  // From here on the request is cancelled as soon as the client's connection closes. `with_top`: `logprobs` was asked
  // for.
  AnswerStream(RouteCall& call, std::shared_ptr<engine::TokenStream> tokens, AnswerHead head, bool with_top);
  AnswerStream(AnswerStream&&) = default;
  AnswerStream& operator=(AnswerStream&&) = delete;

  // Waits for the first event. An error becomes the HTTP answer; anything else, and a heartbeat's time of silence,
  // starts the stream.
  static Result<HttpResponse> streamed(AnswerStream answer);
  // Waits for the end. Errors at any point are the HTTP answer.
  Result<HttpResponse> whole() &&;

 private:
  void write(BodyWriter& out);
  bool write_ready_events(SseWriter& sse);
  void add_event(SseWriter& sse, const engine::StreamEvent& event);
  bool flush(SseWriter& sse);

  std::chrono::milliseconds heartbeat_;
  std::shared_ptr<const Backend> backend_;
  std::shared_ptr<RequestRecord> record_;
  std::shared_ptr<engine::TokenStream> tokens_;
  AnswerHead head_;
  bool with_top_;
  std::optional<engine::StreamEvent> next_;  // taken from the stream, not written yet
  std::unique_ptr<DisconnectWatch> watch_;   // last: it must go before what its callback uses
};

}  // namespace promptcached::api
