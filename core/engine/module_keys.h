// The identity of every entry's KV: what makes two registrations share it, and stale KV impossible.
#pragma once

#include <string>
#include <vector>

#include "core/base/sha256.h"
#include "core/kv/module_key.h"
#include "core/pml/schema.h"

namespace promptcached::engine {

// What KV depends on besides the schema.
struct KvIdentity {
  std::string model_fingerprint;
  std::string kv_dtype;
  std::string tenant;  // scope of sharing; empty: everybody
};

// Puts it into what becomes a key.
void add_identity(Sha256& sha, const KvIdentity& identity);

// keys[i] belongs to schema.entries[i]. Two entries, of whatever schemas, have the same key exactly when their own
// tokens and positions and all they attend to while being encoded are the same, for the same model, dtype and tenant.
std::vector<kv::ModuleKey> module_keys(const pml::Schema& schema, const KvIdentity& identity);

}  // namespace promptcached::engine
