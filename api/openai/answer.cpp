#include "api/openai/answer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "api/error.h"
#include "api/random_id.h"

namespace promptcached::api {
namespace {

using engine::DoneEvent;
using engine::FinishReason;
using engine::StartEvent;
using engine::TokenEvent;

// How long to wait for an event that no heartbeat waits for; the stream ends by its deadline in any case.
constexpr std::chrono::milliseconds kLong = std::chrono::hours(1);

// OpenAI's name for a token that cannot be.
constexpr float kNever = -9999;

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Json calls_json(const std::vector<ToolCall>& calls, bool with_index) {
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    Json json;
    if (with_index) {
      json["index"] = list.size();
    }
    json["id"] = new_id("call_");
    json["type"] = "function";
    json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

OpenAiAnswer::OpenAiAnswer(RouteCall& call, OpenAiHead head, std::vector<std::shared_ptr<engine::TokenStream>> streams)
    : heartbeat_(call.service.options().heartbeat),
      backend_(call.backend),
      record_(call.record),
      head_(std::move(head)),
      created_(unix_seconds()),
      choices_(streams.size()),
      streams_(std::make_shared<ChoiceStreams>(std::move(streams))) {
  for (Choice& choice : choices_) {
    choice.parser = ToolCallParser(head_.tools);
  }
  if (call.request.client != nullptr) {
    watch_ = call.request.client->watch([streams = streams_] { streams->cancel(); });
  }
}

// ---- Streamed ----

Result<HttpResponse> OpenAiAnswer::streamed(OpenAiAnswer answer) {
  answer.next_ = answer.streams_->next(answer.heartbeat_);
  if (answer.next_) {
    if (const auto* error = std::get_if<Error>(&answer.next_->event)) {
      answer.streams_->cancel();
      return *error;
    }
  }
  HttpResponse response;
  response.content_type = kEventStream;
  response.headers = event_stream_headers();
  // std::function wants a copyable callable.
  response.stream = [shared = std::make_shared<OpenAiAnswer>(std::move(answer))](BodyWriter& out) {
    shared->write(out);
  };
  return response;
}

void OpenAiAnswer::write(BodyWriter& out) {
  SseWriter sse(out);
  for (;;) {
    if (!next_) {
      if (streams_->finished()) {
        break;
      }
      sse.comment("waiting");
    }
    if (!write_ready_events(sse)) {
      streams_->cancel();
      record_->set_failed(ErrorCode::kCancelled);
      return;
    }
    if (failed_) {
      return;  // a client takes what follows an error for part of the answer
    }
    next_ = streams_->next(heartbeat_);
  }
  if (head_.include_usage) {
    Json last = document(head_.chat ? "chat.completion.chunk" : "text_completion");
    last["choices"] = Json::array();
    last["usage"] = usage();
    sse.data(to_text(last));
  }
  sse.data("[DONE]");
  sse.flush();
}

// Everything that is there now goes out in one write.
bool OpenAiAnswer::write_ready_events(SseWriter& sse) {
  while (next_ && !failed_) {
    add_event(sse, *next_);
    next_ = streams_->next(std::chrono::milliseconds(0));
  }
  const auto start = Clock::now();
  const bool written = sse.flush();
  record_->add_write_seconds(std::chrono::duration<double>(Clock::now() - start).count());
  return written;
}

void OpenAiAnswer::add_event(SseWriter& sse, ChoiceStreams::Item& item) {
  Choice& choice = choices_[item.choice];
  if (const auto* start = std::get_if<StartEvent>(&item.event)) {
    record_->note_start(*start);
    if (head_.chat) {
      add_chunk(sse, item.choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    } else if (!echo_of(item.choice).empty()) {
      add_chunk(sse, item.choice, echo_of(item.choice), nullptr, nullptr);
    }
  } else if (const auto* token = std::get_if<TokenEvent>(&item.event)) {
    std::string text = text_of(choice, *token);
    Json logprobs = logprobs_of(choice, *token);
    if (!text.empty()) {
      record_->note_first_text();
    }
    if (!text.empty() || !logprobs.is_null()) {
      Json content = head_.chat ? Json{{"content", std::move(text)}} : Json(std::move(text));
      add_chunk(sse, item.choice, std::move(content), std::move(logprobs), nullptr);
    }
  } else if (const auto* done = std::get_if<DoneEvent>(&item.event)) {
    add_end(sse, item.choice, *done);
  } else if (const auto* error = std::get_if<Error>(&item.event)) {
    record_->set_failed(error->code);
    streams_->cancel();
    failed_ = true;
    sse.data(to_text(error_document(*error, record_->request_id())));
  }
}

// What the parser held back, and the reason of the end.
void OpenAiAnswer::add_end(SseWriter& sse, std::size_t index, const DoneEvent& done) {
  Choice& choice = choices_[index];
  ToolCallParser::End rest = choice.parser.finish();
  if (!rest.content.empty()) {
    record_->note_first_text();
    Json content = head_.chat ? Json{{"content", rest.content}} : Json(rest.content);
    add_chunk(sse, index, std::move(content), nullptr, nullptr);
  }
  if (!rest.calls.empty()) {
    record_->note_first_text();
    add_chunk(sse, index, {{"tool_calls", calls_json(rest.calls, true)}}, nullptr, nullptr);
  }
  note_end(choice, done, !rest.calls.empty());
  add_chunk(sse, index, head_.chat ? Json::object() : Json(""), nullptr, choice.finish_reason);
}

// `content`: the delta of a chat, the text of a completion.
void OpenAiAnswer::add_chunk(SseWriter& sse, std::size_t choice, Json content, Json logprobs, Json finish_reason) {
  Json chunk = document(head_.chat ? "chat.completion.chunk" : "text_completion");
  Json json;
  json["index"] = choice;
  json[head_.chat ? "delta" : "text"] = std::move(content);
  json["logprobs"] = std::move(logprobs);
  json["finish_reason"] = std::move(finish_reason);
  chunk["choices"] = Json::array({std::move(json)});
  if (head_.include_usage) {
    chunk["usage"] = nullptr;
  }
  sse.data(to_text(chunk));
}

// ---- As one document ----

Result<HttpResponse> OpenAiAnswer::whole() && {
  while (auto item = streams_->next(kLong)) {
    Choice& choice = choices_[item->choice];
    if (const auto* error = std::get_if<Error>(&item->event)) {
      streams_->cancel();
      return *error;
    }
    if (const auto* start = std::get_if<StartEvent>(&item->event)) {
      record_->note_start(*start);
    } else if (const auto* token = std::get_if<TokenEvent>(&item->event)) {
      choice.text += text_of(choice, *token);
      append_logprobs(choice.logprobs, logprobs_of(choice, *token));
      if (!choice.text.empty()) {
        record_->note_first_text();
      }
    } else if (const auto* done = std::get_if<DoneEvent>(&item->event)) {
      ToolCallParser::End rest = choice.parser.finish();
      choice.text += rest.content;
      choice.calls = std::move(rest.calls);
      note_end(choice, *done, !choice.calls.empty());
    }
  }
  Json answer = document(head_.chat ? "chat.completion" : "text_completion");
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    answer["choices"].push_back(head_.chat ? chat_choice(i) : text_choice(i));
  }
  answer["usage"] = usage();
  return json_response(answer);
}

Json OpenAiAnswer::chat_choice(std::size_t index) {
  Choice& choice = choices_[index];
  Json message;
  message["role"] = "assistant";
  message["content"] = choice.text.empty() && !choice.calls.empty() ? Json(nullptr) : Json(choice.text);
  message["refusal"] = nullptr;
  if (!choice.calls.empty()) {
    message["tool_calls"] = calls_json(choice.calls, false);
  }
  Json json;
  json["index"] = index;
  json["message"] = std::move(message);
  json["logprobs"] = std::move(choice.logprobs);
  json["finish_reason"] = choice.finish_reason;
  return json;
}

Json OpenAiAnswer::text_choice(std::size_t index) {
  Choice& choice = choices_[index];
  Json json;
  json["index"] = index;
  json["text"] = echo_of(index) + choice.text;
  json["logprobs"] = std::move(choice.logprobs);
  json["finish_reason"] = choice.finish_reason;
  return json;
}

// ---- Both ----

std::string OpenAiAnswer::text_of(Choice& choice, const TokenEvent& token) {
  if (head_.tools == ToolSyntax::kNone) {
    return token.text;
  }
  const auto control = tool_control_text(head_.tools, *backend_->engine->text().tokenizer, token.token_id);
  return choice.parser.push(control ? *control + token.text : token.text);
}

// Of one token: what a chunk says of it. Null when they were not asked for.
Json OpenAiAnswer::logprobs_of(Choice& choice, const TokenEvent& token) const {
  if (!head_.logprobs) {
    return nullptr;
  }
  Json own = token_logprob(token.token_id, token.logprob);
  if (head_.chat) {
    own["top_logprobs"] = Json::array();
    for (const engine::TokenLogprob& other : token.top_logprobs) {
      own["top_logprobs"].push_back(token_logprob(other.token_id, other.logprob));
    }
    return {{"content", Json::array({std::move(own)})}, {"refusal", nullptr}};
  }
  Json top = Json::object();
  for (const engine::TokenLogprob& other : token.top_logprobs) {
    top[other.text] = token_logprob(other.token_id, other.logprob)["logprob"];
  }
  Json json;
  json["tokens"] = Json::array({own["token"]});
  json["token_logprobs"] = Json::array({own["logprob"]});
  json["top_logprobs"] = Json::array({std::move(top)});
  json["text_offset"] = Json::array({choice.text_offset});
  choice.text_offset += static_cast<std::int64_t>(characters(token.text));
  return json;
}

Json OpenAiAnswer::token_logprob(TokenId id, float logprob) const {
  const Tokenizer& tokenizer = *backend_->engine->text().tokenizer;
  Json bytes = Json::array();
  for (const char byte : tokenizer.decode_bytes({&id, 1}, /*skip_special=*/false)) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  Json json;
  json["token"] = tokenizer.decode({&id, 1}, /*skip_special=*/false);
  json["logprob"] = json_number(std::isfinite(logprob) ? logprob : kNever);
  json["bytes"] = std::move(bytes);
  return json;
}

// Lists are joined, member by member.
void OpenAiAnswer::append_logprobs(Json& all, const Json& more) {
  if (all.is_null()) {
    all = more;
    return;
  }
  for (const auto& [name, list] : more.items()) {
    if (list.is_array()) {
      all[name].insert(all[name].end(), list.begin(), list.end());
    }
  }
}

const std::string& OpenAiAnswer::echo_of(std::size_t choice) const {
  static const std::string kNothing;
  return head_.echo.empty() ? kNothing : head_.echo[choice / static_cast<std::size_t>(head_.choices_a_prompt)];
}

void OpenAiAnswer::note_end(Choice& choice, const DoneEvent& done, bool has_calls) {
  record_->note_end(done);
  choice.usage = done.usage;
  choice.finish_reason = has_calls ? "tool_calls" : std::string(engine::to_string(done.finish_reason));
}

Json OpenAiAnswer::document(std::string_view object) const {
  Json json;
  json["id"] = head_.id;
  json["object"] = object;
  json["created"] = created_;
  json["model"] = head_.model;
  return json;
}

// A prompt counts once, however many answers it has.
Json OpenAiAnswer::usage() const {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t completion = 0;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const engine::Usage& usage = choices_[i].usage;
    completion += usage.completion_tokens;
    if (i % static_cast<std::size_t>(head_.choices_a_prompt) == 0) {
      prompt += usage.prompt_tokens;
      cached += usage.cached_tokens;
    }
  }
  Json json;
  json["prompt_tokens"] = prompt;
  json["completion_tokens"] = completion;
  json["total_tokens"] = prompt + completion;
  json["prompt_tokens_details"] = {{"cached_tokens", cached}};
  return json;
}

}  // namespace promptcached::api
