// Sequence: one request on its way through the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/generate_request.h"
#include "core/engine/module_encoder.h"
#include "core/engine/sampler.h"
#include "core/engine/text_output.h"
#include "core/engine/token_stream.h"
#include "core/kv/sequence_cache.h"

namespace promptcached::engine {

enum class SequenceState {
  kWaiting,   // in line
  kLoading,   // admitted; some modules are being loaded or encoded
  kRunning,   // in the batch
  kFinished,  // its stream is closed
};

// One of the plan's cached parts, pinned for this sequence.
struct PinnedPart {
  kv::ModulePin pin;
  std::optional<SourceLabel> found;  // where, the first time
  SourceLabel source() const { return found.value_or(SourceLabel::kComputed); }
  bool is_cached() const { return source() != SourceLabel::kComputed; }
};

// Engine thread only, but for the stream.
class Sequence {
 public:
  Sequence(GenerateRequest request, std::shared_ptr<TokenStream> stream, std::shared_ptr<const Tokenizer> tokenizer,
           kv::ModulePool& pool);

  // Takes the sampled token; returns why the sequence ends with it, if it does. Emits what may be shown.
  std::optional<FinishReason> accept(const SampledToken& sampled, std::span<const std::int32_t> end_tokens);
  void finish(FinishReason reason);
  void fail(Error error);
  void give_back_memory();  // blocks and pins; own tokens are computed anew when it runs again

  // Own tokens: the plan's new ones, then what was generated. tokens[i] stands at positions[i].
  std::int32_t own_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t remaining() const { return own_tokens() - cache.size(); }  // not computed yet; 1 while decoding
  Usage usage() const;
  bool decoding() const { return generated > 0 && remaining() == 1; }

  GenerateRequest request;
  std::shared_ptr<TokenStream> stream;
  SequenceState state = SequenceState::kWaiting;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::int32_t generated = 0;
  kv::SequenceCache cache;        // size(): own tokens whose KV is stored
  std::vector<PinnedPart> parts;  // by index of plan.cached
  std::int32_t missing_parts = 0;
  std::shared_ptr<PrivateKv> private_kv;  // with bypass_cache
  std::shared_ptr<void> claim;  // what encode jobs know this sequence's waiting by; reset: no longer waited for
  bool looked_up = false;       // look-ups are counted once, whatever happens later
  std::shared_ptr<void> slot;   // its place among the open requests, given back when it ends
  Sampler sampler;
  TextOutput output;

  // When things happened, for Timing and the histograms.
  Clock::time_point admitted;
  Clock::time_point loaded;
  Clock::time_point first_token;
  Clock::time_point last_token;
  std::chrono::duration<double> load_time{};

 private:
  void start_stream();
  void emit(TokenEvent event);
  void flush_held(const std::string& text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<TokenEvent> held_;  // the last token's event while its text may still grow
};

}  // namespace promptcached::engine
