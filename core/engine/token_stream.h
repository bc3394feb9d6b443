// TokenStream: what the engine tells the waiting route about one request, as it happens.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::engine {

struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  // read from KV that was there before the request
  std::int32_t new_tokens = 0;     // prompt tokens computed for this request: prompt_tokens - cached_tokens
  std::int32_t completion_tokens = 0;
};

// One thing the prompt is made of, in position order.
struct CachePartInfo {
  std::string module;  // path, "#root", or last of all "#prefix": own tokens that another request had computed
  SourceLabel source = SourceLabel::kComputed;
  std::int32_t tokens = 0;
};

struct Timing {                  // milliseconds
  double queue_ms = 0;           // arrival to admission, without load_ms
  double load_ms = 0;            // waiting for modules to be encoded or brought up
  double prefill_ms = 0;         // admission to first token
  double ttft_ms = 0;            // arrival to first token
  double decode_ms = 0;          // first token to last
  double tokens_per_second = 0;  // of decoding; 0 with fewer than two tokens
};

enum class FinishReason { kStop, kLength, kCancelled, kError };
std::string_view to_string(FinishReason reason);

struct TokenLogprob {
  TokenId token_id = 0;
  std::string text;
  float logprob = 0;
};

struct StartEvent {
  Usage usage;
  std::vector<CachePartInfo> cache;
};
struct TokenEvent {
  std::string text;  // what this token completes; empty while a character or a possible stop string is incomplete
  TokenId token_id = 0;
  float logprob = 0;  // the model's own, before bias, penalties and temperature
  std::vector<TokenLogprob> top_logprobs;
};
struct DoneEvent {
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  Timing timing;
};

// StartEvent (just before the first token, or before done), TokenEvents, then one DoneEvent; or an Error at any point,
// which ends the stream.
using StreamEvent = std::variant<StartEvent, TokenEvent, DoneEvent, Error>;

// One producer (the engine thread), one consumer (the route). Never blocks the engine: its length is bounded by the
// request's max_tokens.
class TokenStream {
 public:
  // The next event; nullopt when none came within `wait`, or the stream is over.
  std::optional<StreamEvent> next(std::chrono::milliseconds wait);
  // True once the last event has been taken.
  bool finished() const;

  // The client has gone: the engine drops the request within one step. From any thread, any number of times.
  void cancel();
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // For who reads several streams: `notify` is called after each event that comes from now on, from another thread,
  // and must not block. At most once, before the first next().
  void on_event(std::function<void()> notify);

  // For the engine.
  void push(StreamEvent event);
  void on_cancel(std::function<void()> wake);  // set before the stream is shared

 private:
  mutable std::mutex mutex_;  // guards events_ and closed_
  std::condition_variable arrived_;
  std::deque<StreamEvent> events_;
  bool closed_ = false;  // the last event has been pushed
  std::atomic<bool> cancelled_{false};
  std::function<void()> wake_;
  std::shared_ptr<const std::function<void()>> notify_;  // guarded by mutex_
};

}  // namespace promptcached::engine
