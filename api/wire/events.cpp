#include "api/wire/events.h"

namespace promptcached::api {

Json usage_json(const engine::Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["cached_tokens"] = usage.cached_tokens;
  json["new_tokens"] = usage.new_tokens;
  return json;
}

Json cache_json(const std::vector<engine::CachePartInfo>& cache) {
  Json json = Json::array();
  for (const engine::CachePartInfo& part : cache) {
    json.push_back({{"module", part.module}, {"tier", to_string(part.source)}, {"tokens", part.tokens}});
  }
  return json;
}

Json first_token_timing_json(const engine::Timing& timing) {
  Json json;
  json["queue_ms"] = json_milliseconds(timing.queue_ms);
  json["load_ms"] = json_milliseconds(timing.load_ms);
  json["prefill_ms"] = json_milliseconds(timing.prefill_ms);
  json["ttft_ms"] = json_milliseconds(timing.ttft_ms);
  return json;
}

Json timing_json(const engine::Timing& timing) {
  Json json = first_token_timing_json(timing);
  json["decode_ms"] = json_milliseconds(timing.decode_ms);
  json["tokens_per_second"] = json_milliseconds(timing.tokens_per_second);
  return json;
}

Json start_json(const AnswerHead& head, const engine::StartEvent* start) {
  Json json;
  json["id"] = head.id;
  json["model"] = head.model;
  json["schema"] = head.schema;
  json["version"] = head.version;
  if (head.prompt_text) {
    json["prompt_text"] = *head.prompt_text;
  }
  if (start != nullptr) {
    json["usage"] = usage_json(start->usage);
    json["cache"] = cache_json(start->cache);
  }
  return json;
}

Json token_json(const engine::TokenEvent& token, bool with_top) {
  Json json;
  json["text"] = token.text;
  json["token_id"] = token.token_id;
  json["logprob"] = json_number(token.logprob);
  if (with_top) {
    Json top = Json::array();
    for (const engine::TokenLogprob& other : token.top_logprobs) {
      top.push_back({{"token_id", other.token_id}, {"text", other.text}, {"logprob", json_number(other.logprob)}});
    }
    json["top_logprobs"] = std::move(top);
  }
  return json;
}

Json done_json(const engine::DoneEvent& done) {
  Json json;
  json["finish_reason"] = engine::to_string(done.finish_reason);
  Json usage = usage_json(done.usage);
  usage["completion_tokens"] = done.usage.completion_tokens;
  usage["total_tokens"] = done.usage.prompt_tokens + done.usage.completion_tokens;
  json["usage"] = std::move(usage);
  json["timing"] = timing_json(done.timing);
  return json;
}

}  // namespace promptcached::api
