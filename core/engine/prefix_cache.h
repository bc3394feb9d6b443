// PrefixCache: the KV of sequences' own tokens, kept for whoever begins with the same ones.
//
// A block of own tokens that is full is published in the module pool as it lies, under a key that follows from all its
// tokens attend to: the modules, the blocks before it, and its own tokens with their positions. So the blocks of all
// sequences form a tree, whose paths are found by computing keys, in whatever tier and after whatever restart. What a
// sequence leaves in its last block is published too. Of the blocks that follow a known one an index is kept, since a
// block that has only some tokens in common is found by no key: these tokens' KV is copied from it.
//
// Engine thread only. docs/decisions/0018-prefix-cache.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/engine/module_keys.h"
#include "core/engine/sequence.h"
#include "core/engine/step_price.h"
#include "core/kv/module_key.h"
#include "core/kv/module_pool.h"
#include "core/kv/tier_mover.h"

namespace promptcached::engine {

class PrefixCache final {
 public:
  struct Options {
    bool enabled = true;
    KvIdentity identity;
  };
  PrefixCache(Options options, kv::ModulePool& pool, kv::TierMover& tiers, const StepPrice& price);

  // Whether the sequence's tokens are looked up and published here at all.
  bool serves(const Sequence& sequence) const { return options_.enabled && !sequence.request.bypass_cache; }

  // Shares the blocks that are known of a sequence that has none yet. At least its last token is left to be computed.
  // False: blocks are on their way from a lower tier, or others to one, to make room. Ask again when some have come,
  // until it is true.
  bool find(const std::shared_ptr<Sequence>& sequence);
  // Copies what is known of the block behind those. Room for it must have been reserved.
  void copy_head(Sequence& sequence);

  // What find() and copy_head() would bring to a sequence that is not to run: how many tokens, where the farthest lie,
  // and how long loading them takes, one by one.
  struct Foreseen {
    std::int32_t tokens = 0;
    SourceLabel source = SourceLabel::kDevice;
    double load_seconds = 0;
  };
  Foreseen foresee(Sequence& sequence);

  // Publishes the blocks that have become full.
  void publish(Sequence& sequence);
  // The sequence ends, or gives its memory back: publishes the rest as well.
  void publish_all(Sequence& sequence);

 private:
  using Tokens = std::vector<std::pair<TokenId, std::int32_t>>;  // with their positions
  using Children = std::map<Tokens, kv::ModuleKey>;              // none begins with another
  struct Match {
    kv::ModuleKey key;
    std::int32_t tokens = 0;  // in common
    std::int32_t stored = 0;  // in that block
  };

  // How many blocks of a sequence could be shared.
  std::int32_t whole_blocks(const Sequence& sequence) const { return (sequence.own_tokens() - 1) / block_tokens_; }
  bool adopt(Sequence& sequence);
  void seek(const std::shared_ptr<Sequence>& sequence);
  void seek_head(const std::shared_ptr<Sequence>& sequence);
  bool load(const std::shared_ptr<Sequence>& sequence, const kv::ModuleKey& key, std::int32_t tokens);
  std::optional<kv::ModulePin> reserve(PrefixChain& chain, const kv::ModuleKey& key, std::int32_t tokens);
  void loaded(Sequence* sequence, kv::TierMover::Loaded block);
  kv::ModuleKey root_key(const GenerateRequest& request) const;
  kv::ModuleKey parent_key(Sequence& sequence, std::int32_t block) const;
  kv::ModuleKey block_key(Sequence& sequence, std::int32_t block, std::int32_t tokens) const;
  Tokens tokens_of(const Sequence& sequence, std::int32_t block, std::int32_t tokens) const;
  void share(Sequence& sequence, std::int32_t block, std::int32_t tokens);
  void note(const kv::ModuleKey& parent, Tokens tokens, const kv::ModuleKey& key);
  std::optional<Match> nearest_head(Sequence& sequence, std::int32_t block);
  std::optional<Match> nearest(Sequence& sequence, std::int32_t block, std::int32_t tokens);
  void copy(std::byte* to, const std::byte* from, std::int32_t tokens) const;
  void fill_rest(std::byte* block, std::int32_t tokens) const;
  bool exists(const kv::ModuleKey& key) const;
  void drop_dead();

  const Options options_;
  kv::ModulePool& pool_;
  kv::TierMover& tiers_;
  const StepPrice& price_;
  const std::int32_t block_tokens_;
  std::unordered_map<kv::ModuleKey, Children, kv::ModuleKeyHash> children_;  // by parent
  std::size_t entries_ = 0;                                                  // in all of them
  std::size_t most_entries_;                                                 // with more, dead ones are looked for
};

}  // namespace promptcached::engine
