#include "api/answer_stream.h"

#include <utility>
#include <variant>

#include "api/error.h"

namespace promptcached::api {
namespace {

using engine::DoneEvent;
using engine::StartEvent;
using engine::TokenEvent;

// How long to wait for an event that no heartbeat waits for; the stream ends by its deadline in any case.
constexpr std::chrono::milliseconds kLong = std::chrono::hours(1);

}  // namespace

AnswerStream::AnswerStream(RouteCall& call, std::shared_ptr<engine::TokenStream> tokens, AnswerHead head, bool with_top)
    : heartbeat_(call.service.options().heartbeat),
      backend_(call.backend),
      record_(call.record),
      tokens_(std::move(tokens)),
      head_(std::move(head)),
      with_top_(with_top) {
  if (call.request.client != nullptr) {
    watch_ = call.request.client->watch([stream = tokens_] { stream->cancel(); });
  }
}

Result<HttpResponse> AnswerStream::streamed(AnswerStream answer) {
  answer.next_ = answer.tokens_->next(answer.heartbeat_);
  if (answer.next_) {
    if (const auto* error = std::get_if<Error>(&*answer.next_)) {
      return *error;
    }
  }
  HttpResponse response;
  response.content_type = kEventStream;
  response.headers = event_stream_headers();
  // std::function wants a copyable callable.
  response.stream = [shared = std::make_shared<AnswerStream>(std::move(answer))](BodyWriter& out) {
    shared->write(out);
  };
  return response;
}

void AnswerStream::write(BodyWriter& out) {
  SseWriter sse(out);
  for (;;) {
    if (!next_) {
      if (tokens_->finished()) {
        return;
      }
      sse.comment("waiting");
    }
    if (!write_ready_events(sse)) {
      tokens_->cancel();
      record_->set_failed(ErrorCode::kCancelled);
      return;
    }
    next_ = tokens_->next(heartbeat_);
  }
}

// Everything that is there now goes out in one write.
bool AnswerStream::write_ready_events(SseWriter& sse) {
  while (next_) {
    add_event(sse, *next_);
    next_ = tokens_->next(std::chrono::milliseconds(0));
  }
  return flush(sse);
}

void AnswerStream::add_event(SseWriter& sse, const engine::StreamEvent& event) {
  if (const auto* start = std::get_if<StartEvent>(&event)) {
    record_->note_start(*start);
    sse.event("start", start_json(head_, start));
  } else if (const auto* token = std::get_if<TokenEvent>(&event)) {
    if (!token->text.empty()) {
      record_->note_first_text();
    }
    sse.event("token", token_json(*token, with_top_));
  } else if (const auto* done = std::get_if<DoneEvent>(&event)) {
    record_->note_end(*done);
    sse.event("done", done_json(*done));
  } else if (const auto* error = std::get_if<Error>(&event)) {
    record_->set_failed(error->code);
    sse.event("error", error_document(*error, record_->request_id()));
  }
}

bool AnswerStream::flush(SseWriter& sse) {
  const auto start = Clock::now();
  const bool written = sse.flush();
  record_->add_write_seconds(std::chrono::duration<double>(Clock::now() - start).count());
  return written;
}

Result<HttpResponse> AnswerStream::whole() && {
  Json answer = start_json(head_, nullptr);
  std::string text;
  Json tokens = Json::array();
  while (auto event = tokens_->next(kLong)) {
    if (const auto* error = std::get_if<Error>(&*event)) {
      return *error;
    }
    if (const auto* start = std::get_if<StartEvent>(&*event)) {
      record_->note_start(*start);
      answer = start_json(head_, start);
    } else if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      text += token->text;
      if (!token->text.empty()) {
        record_->note_first_text();
      }
      if (with_top_) {
        tokens.push_back(token_json(*token, true));
      }
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      record_->note_end(*done);
      answer["text"] = text;
      answer.update(done_json(*done));
    }
  }
  if (with_top_) {
    answer["tokens"] = std::move(tokens);
  }
  const auto start = Clock::now();
  HttpResponse response = json_response(answer);
  record_->add_write_seconds(std::chrono::duration<double>(Clock::now() - start).count());
  return response;
}

}  // namespace promptcached::api
