// OpenAiAnswer: from the engine's events to OpenAI's documents and chunks, of one choice or several.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/http_types.h"
#include "api/json.h"
#include "api/openai/choice_streams.h"
#include "api/openai/tool_calls.h"
#include "api/request_record.h"
#include "api/routes.h"
#include "api/sse_writer.h"
#include "core/engine/token_stream.h"

namespace promptcached::api {

// What of the request its answer depends on.
struct OpenAiHead {
  bool chat = false;  // else a text completion
  std::string id;     // "chatcmpl-…", "cmpl-…"
  std::string model;
  bool logprobs = false;
  bool include_usage = false;         // in a stream: a last chunk with it
  std::int32_t choices_a_prompt = 1;  // choices are numbered prompt by prompt
  std::vector<std::string> echo;      // by prompt: what stands in front of its answers; empty: nothing
  ToolSyntax tools = ToolSyntax::kNone;
};

class OpenAiAnswer final {
 public:
  // From here on the requests are cancelled as soon as the client's connection closes. `streams`: one for each choice.
  OpenAiAnswer(RouteCall& call, OpenAiHead head, std::vector<std::shared_ptr<engine::TokenStream>> streams);
  OpenAiAnswer(OpenAiAnswer&&) = default;
  OpenAiAnswer& operator=(OpenAiAnswer&&) = delete;

  // Waits for the first event. An error becomes the HTTP answer; anything else, and a heartbeat's time of silence,
  // starts the stream.
  static Result<HttpResponse> streamed(OpenAiAnswer answer);
  // Waits for the end of all. The first error is the HTTP answer.
  Result<HttpResponse> whole() &&;

 private:
  struct Choice {
    ToolCallParser parser;
    std::string text;              // whole(): all of it
    std::vector<ToolCall> calls;   // whole()
    Json logprobs;                 // whole(): of all tokens
    std::int64_t text_offset = 0;  // of the next token's text, in characters
    std::string finish_reason;
    engine::Usage usage;
  };

  void write(BodyWriter& out);
  bool write_ready_events(SseWriter& sse);
  void add_event(SseWriter& sse, ChoiceStreams::Item& item);
  void add_chunk(SseWriter& sse, std::size_t choice, Json content, Json logprobs, Json finish_reason);
  void add_end(SseWriter& sse, std::size_t choice, const engine::DoneEvent& done);
  Json chat_choice(std::size_t index);
  Json text_choice(std::size_t index);

  std::string text_of(Choice& choice, const engine::TokenEvent& token);
  Json logprobs_of(Choice& choice, const engine::TokenEvent& token) const;
  Json token_logprob(TokenId id, float logprob) const;
  static void append_logprobs(Json& all, const Json& more);
  const std::string& echo_of(std::size_t choice) const;
  void note_end(Choice& choice, const engine::DoneEvent& done, bool has_calls);
  Json document(std::string_view object) const;
  Json usage() const;

  std::chrono::milliseconds heartbeat_;
  std::shared_ptr<const Backend> backend_;
  std::shared_ptr<RequestRecord> record_;
  OpenAiHead head_;
  std::int64_t created_;
  std::vector<Choice> choices_;
  bool failed_ = false;  // a stream that ended with an error
  std::shared_ptr<ChoiceStreams> streams_;
  std::optional<ChoiceStreams::Item> next_;  // taken from the streams, not written yet
  std::unique_ptr<DisconnectWatch> watch_;   // last: it must go before what its callback uses
};

}  // namespace promptcached::api
