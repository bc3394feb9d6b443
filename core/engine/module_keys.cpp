#include "core/engine/module_keys.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "core/base/sha256.h"

namespace promptcached::engine {
namespace {

class KeyMaker {
 public:
  explicit KeyMaker(const pml::Schema& schema) : schema_(schema) {}

  // Digest of the entry's tokens at positions below `limit`, and of everything those attended to.
  Sha256::Digest content(pml::EntryIndex index, std::int32_t limit) {
    const pml::Entry& entry = schema_.entries[static_cast<std::size_t>(index)];
    limit = std::min(limit, end_of(entry));
    const auto key = std::make_pair(index, limit);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
    Sha256 sha;
    add_tokens(sha, entry, limit);
    const pml::EncodingPass& pass = schema_.passes[static_cast<std::size_t>(entry.pass)];
    for (const pml::EntryIndex peer : pass.entries) {
      if (peer != index) {
        sha.update_field("peer", std::int64_t{1});
        add_tokens(sha, schema_.entries[static_cast<std::size_t>(peer)], limit);
      }
    }
    for (const pml::ContextRef& ref : pass.context) {
      const std::int32_t visible = std::min(ref.limit, limit);
      if (has_tokens_below(ref, visible)) {
        sha.update_field("context-placeholders", std::int64_t{ref.placeholders});
        const Sha256::Digest seen = content(ref.entry, visible);
        sha.update_field("context", std::as_bytes(std::span(seen)));
      }
    }
    return known_.emplace(key, sha.digest()).first->second;
  }

 private:
  const pml::Module& module_of(const pml::Entry& entry) const {
    return schema_.modules[static_cast<std::size_t>(entry.module)];
  }

  // One past the last position of the entry's own text and placeholders.
  std::int32_t end_of(const pml::Entry& entry) const {
    const pml::Module& module = module_of(entry);
    std::int32_t end = 0;
    for (const pml::TokenRun& run : module.text) {
      end = std::max(end, run.end());
    }
    for (const pml::Parameter& parameter : module.parameters) {
      end = std::max(end, parameter.start + parameter.length);
    }
    return end;
  }

  bool has_tokens_below(const pml::ContextRef& ref, std::int32_t limit) const {
    const pml::Module& module = module_of(schema_.entries[static_cast<std::size_t>(ref.entry)]);
    const bool text = std::any_of(module.text.begin(), module.text.end(),
                                  [&](const pml::TokenRun& run) { return !run.tokens.empty() && run.start < limit; });
    return text || (ref.placeholders && std::any_of(module.parameters.begin(), module.parameters.end(),
                                                    [&](const pml::Parameter& parameter) {
                                                      return parameter.length > 0 && parameter.start < limit;
                                                    }));
  }

  static void add_run(Sha256& sha, const char* tag, std::int32_t start, const std::vector<TokenId>& tokens,
                      std::int32_t limit) {
    const std::int32_t count = std::min(static_cast<std::int32_t>(tokens.size()), limit - start);
    if (count > 0) {
      sha.update_field("position", std::int64_t{start});
      sha.update_field(tag, std::span(tokens).first(static_cast<std::size_t>(count)));
    }
  }

  void add_tokens(Sha256& sha, const pml::Entry& entry, std::int32_t limit) const {
    const pml::Module& module = module_of(entry);
    for (const pml::TokenRun& run : module.text) {
      add_run(sha, "text", run.start, run.tokens, limit);
    }
    for (const pml::Parameter& parameter : module.parameters) {
      add_run(sha, "placeholder", parameter.start, parameter.placeholder, limit);
    }
  }

  const pml::Schema& schema_;
  std::map<std::pair<pml::EntryIndex, std::int32_t>, Sha256::Digest> known_;
};

}  // namespace

void add_identity(Sha256& sha, const KvIdentity& identity) {
  sha.update_field("model", identity.model_fingerprint);
  sha.update_field("kv-dtype", identity.kv_dtype);
  sha.update_field("tenant", identity.tenant);
}

std::vector<kv::ModuleKey> module_keys(const pml::Schema& schema, const KvIdentity& identity) {
  KeyMaker maker(schema);
  std::vector<kv::ModuleKey> keys;
  keys.reserve(schema.entries.size());
  for (std::size_t i = 0; i < schema.entries.size(); ++i) {
    constexpr std::int32_t kAll = std::numeric_limits<std::int32_t>::max();
    const pml::EntryIndex index = static_cast<pml::EntryIndex>(i);
    Sha256 sha;
    sha.update_field("format", "promptcached-kv-1");
    add_identity(sha, identity);
    // Whether placeholder KV is kept is part of what the entry holds.
    sha.update_field("keeps-placeholders", std::int64_t{schema.attention == pml::AttentionMode::kContextual});
    const Sha256::Digest content = maker.content(index, kAll);
    sha.update_field("content", std::as_bytes(std::span(content)));
    keys.push_back(kv::ModuleKey{sha.digest()});
  }
  return keys;
}

}  // namespace promptcached::engine
