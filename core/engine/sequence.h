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
#include "core/engine/token_guide.h"
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

// The sequence's own tokens as the prefix cache knows them.
struct PrefixChain {
  std::vector<kv::ModuleKey> keys;    // [0]: of what they see that is not their own; [i + 1]: of block i, if it is full
  std::int32_t offered = 0;           // leading blocks that are shared already, or could not be
  bool looked_up = false;             // since the sequence was admitted; what follows is of a look-up under way
  std::int32_t sought = 0;            // leading blocks that tiers below the device have been asked for
  std::int32_t guesses = 1;           // how many to ask for next of which no tier is known to have them
  bool head_sought = false;           // and of the block behind those
  bool starved = false;               // memory for the next is on its way out
  bool follows = false;               // another sequence has the next one loaded
  std::int32_t loading = 0;           // blocks on their way
  std::vector<kv::ModulePin> held;    // blocks that have come, or were there behind such
  std::optional<std::int32_t> found;  // tokens, the first time
  SourceLabel source = SourceLabel::kDevice;  // the slowest tier that some of these came from

  bool waits() const { return loading > 0 || starved || follows; }
  void start_anew() {
    PrefixChain anew;  // what stays true is kept
    anew.keys = std::move(keys);
    anew.found = found;
    anew.source = source;
    *this = std::move(anew);
  }
};

// Engine thread only, but for the stream.
class Sequence {
 public:
  Sequence(GenerateRequest request, std::shared_ptr<TokenStream> stream, std::shared_ptr<const Tokenizer> tokenizer,
           kv::ModulePool& pool);

  // Takes the sampled token; returns why the sequence ends with it, if it does. Emits what may be shown. Fails the
  // sequence when its grammar cannot go on.
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
  kv::SequenceCache cache;  // size(): own tokens whose KV is stored
  PrefixChain prefix;
  std::vector<PinnedPart> parts;  // by index of plan.cached
  std::int32_t missing_parts = 0;
  std::shared_ptr<PrivateKv> private_kv;  // with bypass_cache
  std::shared_ptr<void> claim;  // what encode jobs know this sequence's waiting by; reset: no longer waited for
  bool looked_up = false;       // look-ups are counted once, whatever happens later
  std::shared_ptr<void> slot;   // its place among the open requests, given back when it ends
  Sampler sampler;
  std::shared_ptr<TokenGuide> token_guide;  // null: without a grammar
  TextOutput output;

  // When things happened, for Timing and the histograms.
  Clock::time_point admitted;
  Clock::time_point loaded;
  Clock::time_point first_token;
  Clock::time_point last_token;
  std::chrono::duration<double> load_time{};

 private:
  void start_stream();
  bool is_over(TokenId token);
  void emit(TokenEvent event);
  void flush_held(const std::string& text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<TokenEvent> held_;  // the last token's event while its text may still grow
};

}  // namespace promptcached::engine
