#include "core/engine/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>

#include "core/base/sha256.h"

namespace promptcached::engine {
namespace {

// Fewer tokens are computed as fast as they are found, and would fill memory by the block.
constexpr std::int32_t kFewestTokens = 8;
constexpr std::size_t kFewEntries = 1024;

template <typename Tokens>
std::int32_t common_tokens(const Tokens& a, const Tokens& b) {
  return static_cast<std::int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

PrefixCache::PrefixCache(Options options, kv::ModulePool& pool, kv::TierMover& tiers, const StepPrice& price)
    : options_(std::move(options)),
      pool_(pool),
      tiers_(tiers),
      price_(price),
      block_tokens_(pool.block_tokens()),
      most_entries_(kFewEntries) {}

bool PrefixCache::find(const std::shared_ptr<Sequence>& sequence) {
  PrefixChain& chain = sequence->prefix;
  if (!serves(*sequence) || chain.looked_up) {
    return true;
  }
  if (chain.loading > 0) {
    return false;
  }
  const bool is_all = adopt(*sequence);
  chain.starved = chain.follows = false;
  if (!chain.head_sought) {
    chain.held.clear();  // they are shared now, or stand behind one that did not come
    if (tiers_.has_tiers() && !is_all && chain.offered >= chain.sought) {
      seek(sequence);
    }
    if (!chain.waits()) {
      seek_head(sequence);
      chain.head_sought = !chain.waits() || chain.loading > 0;
    }
  }
  chain.looked_up = !chain.waits();
  return chain.looked_up;
}

// Shares what is on the device; whether that is all the sequence could have.
bool PrefixCache::adopt(Sequence& sequence) {
  PrefixChain& chain = sequence.prefix;
  for (; chain.offered < whole_blocks(sequence); ++chain.offered) {
    const kv::ModuleKey key = parent_key(sequence, chain.offered + 1);
    std::optional<kv::ModulePin> pin = pool_.pin(key);
    if (!pin.has_value()) {
      return false;
    }
    sequence.cache.adopt(std::move(*pin));
    note(parent_key(sequence, chain.offered), tokens_of(sequence, chain.offered, block_tokens_), key);
  }
  return true;
}

// Has the blocks behind loaded, all at once; what does not come is computed. A store that servers share may have blocks
// of which nothing is known here: one is asked for, and twice as many each time that all have come.
void PrefixCache::seek(const std::shared_ptr<Sequence>& sequence) {
  PrefixChain& chain = sequence->prefix;
  std::int32_t guesses = chain.guesses;
  for (chain.sought = chain.offered; chain.sought < whole_blocks(*sequence); ++chain.sought) {
    const kv::ModuleKey key = parent_key(*sequence, chain.sought + 1);
    if (std::optional<kv::ModulePin> pin = pool_.hold(key)) {
      chain.held.push_back(std::move(*pin));  // what is loaded must not push it out
      continue;
    }
    const bool is_guess = !tiers_.find(key).has_value() && !pool_.expects(key);
    if ((is_guess && guesses-- == 0) || !load(sequence, key, block_tokens_)) {
      break;
    }
  }
  chain.guesses *= chain.loading > 0 ? 2 : 1;
}

// The block that has only some tokens in common is copied from, so it has to be on the device, too, and the room that
// the sequence needs must not push it out before.
void PrefixCache::seek_head(const std::shared_ptr<Sequence>& sequence) {
  const std::optional<Match> match = nearest_head(*sequence, sequence->cache.size() / block_tokens_);
  if (!match.has_value() || !pool_.memory().on_host()) {
    return;
  }
  if (std::optional<kv::ModulePin> pin = pool_.hold(match->key)) {
    sequence->prefix.held.push_back(std::move(*pin));
  } else {
    load(sequence, match->key, match->stored);
  }
}

// Whether it is on its way.
bool PrefixCache::load(const std::shared_ptr<Sequence>& sequence, const kv::ModuleKey& key, std::int32_t tokens) {
  sequence->prefix.follows = pool_.expects(key);
  if (sequence->prefix.follows ||
      !tiers_.worth_loading(key, pool_.geometry().bytes(block_tokens_), price_.seconds(tokens))) {
    return false;
  }
  std::optional<kv::ModulePin> pin = reserve(sequence->prefix, key, tokens);
  if (!pin.has_value()) {
    return false;
  }
  ++sequence->prefix.loading;
  tiers_.load(std::move(*pin), /*urgent=*/true,
              [this, weak = std::weak_ptr<Sequence>(sequence),
               claim = std::weak_ptr<void>(sequence->claim)](kv::TierMover::Loaded block) {
                const std::shared_ptr<Sequence> waiting = claim.expired() ? nullptr : weak.lock();
                loaded(waiting.get(), std::move(block));
              });
  return true;
}

// Memory for a block; nullopt also when it has to be waited for.
std::optional<kv::ModulePin> PrefixCache::reserve(PrefixChain& chain, const kv::ModuleKey& key, std::int32_t tokens) {
  for (int attempt = 0; attempt < 2; ++attempt) {  // what has to leave for it may have left before that can be asked
    Result<kv::ModulePin> pin = pool_.create(key, tokens, block_tokens_ - tokens, kv::Retention{});
    if (pin.ok()) {
      return std::move(*pin);
    }
    chain.starved = pin.error().code == ErrorCode::kQueueFull && pool_.expects_memory();
    if (chain.starved || pin.error().code != ErrorCode::kQueueFull) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// What was loaded stays, also when nobody waits for it any more.
void PrefixCache::loaded(Sequence* sequence, kv::TierMover::Loaded block) {
  if (block.tier.has_value()) {
    pool_.publish(block.pin, block.worth);
  }
  if (sequence == nullptr) {
    return;
  }
  --sequence->prefix.loading;
  if (block.tier.has_value()) {
    PrefixChain& chain = sequence->prefix;
    chain.source = chain.found.has_value() ? chain.source : std::max(chain.source, source_label(*block.tier));
    chain.held.push_back(std::move(block.pin));
  }
}

void PrefixCache::copy_head(Sequence& sequence) {
  if (!serves(sequence) || !pool_.memory().on_host()) {
    return;
  }
  const std::int32_t block = sequence.cache.size() / block_tokens_;
  const std::optional<Match> match = nearest_head(sequence, block);
  const std::optional<kv::ModulePin> pin = match.has_value() ? pool_.pin(match->key) : std::nullopt;
  if (pin.has_value()) {
    copy(sequence.cache.blocks()[static_cast<std::size_t>(block)].data(), pin->kv().data, match->tokens);
    sequence.cache.append(match->tokens);
  }
  sequence.prefix.held.clear();
}

PrefixCache::Foreseen PrefixCache::foresee(Sequence& sequence) {
  Foreseen all;
  if (!serves(sequence)) {
    return all;
  }
  const auto add = [&](const kv::ModuleKey& key, std::int32_t tokens) {
    if (!pool_.contains(key)) {
      const std::size_t bytes = pool_.geometry().bytes(block_tokens_);
      const auto below = tiers_.foresee(key, bytes, price_.seconds(block_tokens_));
      if (!below.has_value()) {
        return false;
      }
      all.source = std::max(all.source, source_label(below->tier));
      all.load_seconds += below->seconds;
    }
    all.tokens += tokens;
    return true;
  };
  std::int32_t block = 0;
  while (block < whole_blocks(sequence) && add(parent_key(sequence, block + 1), block_tokens_)) {
    ++block;
  }
  const std::optional<Match> head = nearest_head(sequence, block);
  if (head.has_value() && pool_.memory().on_host()) {
    add(head->key, head->tokens);
  }
  return all;
}

// A block holds its tokens' K and V apart for each plane and head.
void PrefixCache::copy(std::byte* to, const std::byte* from, std::int32_t tokens) const {
  const kv::KvGeometry& geometry = pool_.geometry();
  const std::int32_t arrays = geometry.planes() * geometry.kv_heads;
  const std::size_t stride = geometry.bytes(block_tokens_) / static_cast<std::size_t>(arrays);
  const std::size_t bytes = geometry.bytes(tokens) / static_cast<std::size_t>(arrays);
  for (std::int32_t i = 0; i < arrays; ++i) {
    const std::size_t offset = static_cast<std::size_t>(i) * stride;
    std::memcpy(to + offset, from + offset, bytes);
  }
}

// Repeats the last token to the block's end: codecs of lower tiers take the range of numbers from all that is there.
void PrefixCache::fill_rest(std::byte* block, std::int32_t tokens) const {
  const kv::KvGeometry& geometry = pool_.geometry();
  const std::int32_t arrays = geometry.planes() * geometry.kv_heads;
  const std::size_t token_bytes = geometry.bytes_per_token() / static_cast<std::size_t>(arrays);
  std::byte* last = block + static_cast<std::size_t>(tokens - 1) * token_bytes;
  for (std::int32_t i = 0; i < arrays; ++i, last += static_cast<std::size_t>(block_tokens_) * token_bytes) {
    for (std::int32_t behind = 1; behind <= block_tokens_ - tokens; ++behind) {
      std::memcpy(last + static_cast<std::size_t>(behind) * token_bytes, last, token_bytes);
    }
  }
}

void PrefixCache::publish(Sequence& sequence) {
  if (!serves(sequence)) {
    return;
  }
  PrefixChain& chain = sequence.prefix;
  for (; chain.offered < sequence.cache.size() / block_tokens_; ++chain.offered) {
    share(sequence, chain.offered, block_tokens_);
  }
}

void PrefixCache::publish_all(Sequence& sequence) {
  publish(sequence);
  const std::int32_t block = sequence.cache.size() / block_tokens_;
  const std::int32_t rest = sequence.cache.size() % block_tokens_;
  // Where nothing can be copied from it, it would be of no use.
  if (!serves(sequence) || rest < kFewestTokens || !pool_.memory().on_host()) {
    return;
  }
  const std::optional<Match> known = nearest(sequence, block, rest);
  if (!known.has_value() || known->tokens < rest) {
    fill_rest(sequence.cache.blocks()[static_cast<std::size_t>(block)].data(), rest);
    share(sequence, block, rest);
  }
}

void PrefixCache::share(Sequence& sequence, std::int32_t block, std::int32_t tokens) {
  const kv::ModuleKey key =
      tokens == block_tokens_ ? parent_key(sequence, block + 1) : block_key(sequence, block, tokens);
  if (sequence.cache.share(block, key, tokens, {price_.seconds(tokens), 0})) {
    note(parent_key(sequence, block), tokens_of(sequence, block, tokens), key);
  }
}

// ---- Keys ----

// All that own tokens can see and that is not their own.
kv::ModuleKey PrefixCache::root_key(const GenerateRequest& request) const {
  Sha256 sha;
  sha.update_field("format", "promptcached-prefix-1");
  add_identity(sha, options_.identity);
  sha.update_field("scope", request.cache_scope);
  sha.update_field("block-tokens", std::int64_t{block_tokens_});
  for (const pml::CachedPart& part : request.plan.cached) {
    if (part.ranges.empty()) {
      continue;
    }
    sha.update_field("module",
                     std::as_bytes(std::span(request.version->keys[static_cast<std::size_t>(part.entry)].bytes)));
    for (const pml::CachedRange& range : part.ranges) {
      sha.update_field("range", std::span<const std::int32_t>({range.offset, range.count, range.start}));
    }
  }
  return kv::ModuleKey::of_prefix(sha.digest());
}

// Of what stands before the block: the block in front of it, or the root. All full blocks' keys are kept.
kv::ModuleKey PrefixCache::parent_key(Sequence& sequence, std::int32_t block) const {
  std::vector<kv::ModuleKey>& keys = sequence.prefix.keys;
  if (keys.empty()) {
    keys.push_back(root_key(sequence.request));
  }
  while (static_cast<std::int32_t>(keys.size()) <= block) {
    keys.push_back(block_key(sequence, static_cast<std::int32_t>(keys.size()) - 1, block_tokens_));
  }
  return keys[static_cast<std::size_t>(block)];
}

kv::ModuleKey PrefixCache::block_key(Sequence& sequence, std::int32_t block, std::int32_t tokens) const {
  const kv::ModuleKey parent = parent_key(sequence, block);
  const auto begin = static_cast<std::size_t>(block * block_tokens_);
  const auto count = static_cast<std::size_t>(tokens);
  Sha256 sha;
  sha.update_field("parent", std::as_bytes(std::span(parent.bytes)));
  sha.update_field("tokens", std::span<const TokenId>(sequence.tokens).subspan(begin, count));
  sha.update_field("positions", std::span<const std::int32_t>(sequence.positions).subspan(begin, count));
  return kv::ModuleKey::of_prefix(sha.digest());
}

PrefixCache::Tokens PrefixCache::tokens_of(const Sequence& sequence, std::int32_t block, std::int32_t count) const {
  Tokens tokens;
  tokens.reserve(static_cast<std::size_t>(count));
  const std::int32_t begin = block * block_tokens_;
  for (std::int32_t i = begin; i < begin + count; ++i) {
    tokens.emplace_back(sequence.tokens[static_cast<std::size_t>(i)], sequence.positions[static_cast<std::size_t>(i)]);
  }
  return tokens;
}

// ---- The index ----

void PrefixCache::note(const kv::ModuleKey& parent, Tokens tokens, const kv::ModuleKey& key) {
  Children& children = children_[parent];
  const auto [place, is_new] = children.emplace(std::move(tokens), key);
  if (!is_new) {
    return;
  }
  ++entries_;
  // What this one begins with stands before it in the order, and is of no use any more: conversations would leave one
  // such block a turn.
  if (place != children.begin()) {
    const auto before = std::prev(place);
    if (common_tokens(before->first, place->first) == std::ssize(before->first)) {
      pool_.remove(before->second, kv::EvictionReason::kReplaced);
      children.erase(before);
      --entries_;
    }
  }
  if (entries_ > most_entries_) {
    drop_dead();
  }
}

// What is known of the block behind `block` whole ones.
std::optional<PrefixCache::Match> PrefixCache::nearest_head(Sequence& sequence, std::int32_t block) {
  const std::int32_t rest = sequence.own_tokens() - 1 - block * block_tokens_;
  return nearest(sequence, block, std::min(block_tokens_, rest));
}

// The child that has the most in common with the first `tokens` tokens of the sequence's block: one of the two beside
// its place in the order.
std::optional<PrefixCache::Match> PrefixCache::nearest(Sequence& sequence, std::int32_t block, std::int32_t tokens) {
  if (tokens < kFewestTokens) {
    return std::nullopt;
  }
  const Tokens wanted = tokens_of(sequence, block, tokens);
  const auto found = children_.find(parent_key(sequence, block));
  while (found != children_.end() && !found->second.empty()) {
    Children& children = found->second;
    auto best = children.lower_bound(wanted);
    if (best == children.end() || (best != children.begin() && common_tokens(std::prev(best)->first, wanted) >
                                                                   common_tokens(best->first, wanted))) {
      best = std::prev(best);
    }
    const Match match{best->second, common_tokens(best->first, wanted), static_cast<std::int32_t>(best->first.size())};
    if (match.tokens < kFewestTokens) {
      return std::nullopt;
    }
    if (exists(match.key)) {
      return match;
    }
    children.erase(best);
    --entries_;
  }
  return std::nullopt;
}

bool PrefixCache::exists(const kv::ModuleKey& key) const {
  return pool_.contains(key) || pool_.expects(key) || tiers_.find(key).has_value();
}

// Nobody tells when a block is evicted, so the index is gone through whenever it has doubled.
void PrefixCache::drop_dead() {
  entries_ = 0;
  for (auto it = children_.begin(); it != children_.end();) {
    Children& children = it->second;
    std::erase_if(children, [this](const auto& child) { return !exists(child.second); });
    entries_ += children.size();
    it = children.empty() ? children_.erase(it) : std::next(it);
  }
  most_entries_ = std::max(kFewEntries, 2 * entries_);
}

}  // namespace promptcached::engine
