#include "core/engine/sequence.h"

#include <algorithm>
#include <utility>

namespace promptcached::engine {
namespace {

// Enough context for any tokenizer's decoder to know how the first generated token joins the prompt.
constexpr std::int32_t kDecodeContext = 16;

// What a request costs must not grow with its modules: their tokens are listed only for who asks for it.
std::vector<TokenId> penalised_prompt(const GenerateRequest& request) {
  return Sampler::needs_prompt(request.sampling) ? pml::prompt_token_ids(request.plan) : std::vector<TokenId>();
}

double to_ms(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

}  // namespace

Sequence::Sequence(GenerateRequest the_request, std::shared_ptr<TokenStream> the_stream,
                   std::shared_ptr<const Tokenizer> tokenizer, kv::ModulePool& pool)
    : request(std::move(the_request)),
      stream(std::move(the_stream)),
      cache(pool),
      parts(request.plan.cached.size()),
      sampler(request.sampling, penalised_prompt(request), request.top_logprobs),
      output(tokenizer, pml::last_prompt_token_ids(request.plan, kDecodeContext), request.stop),
      tokenizer_(std::move(tokenizer)) {
  for (const pml::NewToken& token : request.plan.new_tokens) {
    tokens.push_back(token.token);
    positions.push_back(token.position);
  }
  if (request.bypass_cache) {
    private_kv = std::make_shared<PrivateKv>();
  }
}

std::optional<FinishReason> Sequence::accept(const SampledToken& sampled, std::span<const std::int32_t> end_tokens) {
  last_token = Clock::now();
  const bool is_end = std::find(end_tokens.begin(), end_tokens.end(), sampled.token) != end_tokens.end();
  const bool ends_here = is_end && (!request.ignore_eos || token_guide != nullptr);
  if (generated == 0) {
    first_token = last_token;
    start_stream();
  }
  if (ends_here) {
    return FinishReason::kStop;  // an end token has no event and is not counted
  }
  tokens.push_back(sampled.token);
  positions.push_back(request.plan.next_position + generated);
  ++generated;

  TokenEvent event;
  event.text = output.push(sampled.token);
  event.token_id = sampled.token;
  event.logprob = sampled.logprob;
  for (const auto& [token, logprob] : sampled.top) {
    event.top_logprobs.push_back({token, tokenizer_->decode({&token, 1}, false), logprob});
  }
  emit(std::move(event));
  const bool over = is_over(sampled.token);
  if (state == SequenceState::kFinished) {
    return std::nullopt;
  }
  if (output.stopped() || over) {
    return FinishReason::kStop;
  }
  if (generated == request.max_tokens) {
    return FinishReason::kLength;
  }
  if (token_guide != nullptr) {
    token_guide->prepare();
  }
  return std::nullopt;
}

// Whether its grammar lets nothing follow.
bool Sequence::is_over(TokenId token) {
  if (token_guide == nullptr) {
    return false;
  }
  const Result<bool> over = token_guide->accept(token);
  if (!over) {
    fail(over.error());
    return false;
  }
  return *over;
}

// Tier names are those of the first look-up: what a preempted sequence finds later is not what the client paid for.
void Sequence::start_stream() {
  StartEvent start;
  start.usage = usage();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const pml::Schema& schema = *request.version->schema;
    const pml::CachedPart& part = request.plan.cached[i];
    const pml::Entry& entry = schema.entries[static_cast<std::size_t>(part.entry)];
    start.cache.push_back(
        {schema.modules[static_cast<std::size_t>(entry.module)].path, parts[i].source(), part.token_count()});
  }
  if (prefix.found.value_or(0) > 0) {
    start.cache.push_back({"#prefix", prefix.source, *prefix.found});
  }
  stream->push(std::move(start));
}

Usage Sequence::usage() const {
  Usage usage;
  usage.prompt_tokens = request.plan.prompt_tokens();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    usage.cached_tokens += parts[i].is_cached() ? request.plan.cached[i].token_count() : 0;
  }
  usage.cached_tokens += prefix.found.value_or(0);
  usage.new_tokens = usage.prompt_tokens - usage.cached_tokens;
  usage.completion_tokens = generated;
  return usage;
}

// Every token has one event. The last one is kept while some of its text is held back, because what is held may turn
// out to be shown at the very end, when no further token brings it.
void Sequence::emit(TokenEvent event) {
  if (held_.has_value()) {
    stream->push(std::move(*held_));
    held_.reset();
  }
  if (output.pending()) {
    held_ = std::move(event);
  } else {
    stream->push(std::move(event));
  }
}

void Sequence::flush_held(const std::string& text) {
  if (held_.has_value()) {
    held_->text += text;
    stream->push(std::move(*held_));
    held_.reset();
  }
}

void Sequence::finish(FinishReason reason) {
  if (state == SequenceState::kFinished) {
    return;
  }
  flush_held(output.finish());
  DoneEvent done;
  done.finish_reason = reason;
  done.usage = usage();
  const Clock::duration load = std::chrono::duration_cast<Clock::duration>(load_time);
  done.timing.load_ms = to_ms(load);
  done.timing.queue_ms = to_ms(loaded - request.arrival - load);
  done.timing.prefill_ms = to_ms(first_token - loaded);
  done.timing.ttft_ms = to_ms(first_token - request.arrival);
  done.timing.decode_ms = to_ms(last_token - first_token);
  if (generated > 1 && last_token > first_token) {
    done.timing.tokens_per_second = (generated - 1) / std::chrono::duration<double>(last_token - first_token).count();
  }
  // Memory and place first: whoever has seen the end of a stream finds them given back.
  state = SequenceState::kFinished;
  give_back_memory();
  slot.reset();
  stream->push(std::move(done));
}

void Sequence::fail(Error error) {
  if (state == SequenceState::kFinished) {
    return;
  }
  flush_held(output.finish());
  state = SequenceState::kFinished;
  give_back_memory();
  slot.reset();
  stream->push(std::move(error));
}

void Sequence::give_back_memory() {
  cache.clear();
  prefix.start_anew();
  for (PinnedPart& part : parts) {
    part.pin.release();
  }
  missing_parts = 0;
  claim.reset();
  if (private_kv != nullptr) {
    private_kv = std::make_shared<PrivateKv>();  // jobs that fill the old one see that nobody waits for them
  }
}

}  // namespace promptcached::engine
