// SchemaStore: the SchemaRegistry, over the engine that encodes for it.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/bounded_queue.h"
#include "core/engine/module_keys.h"
#include "core/engine/schema_journal.h"
#include "core/engine/schema_registry.h"
#include "core/kv/module_pool.h"
#include "core/kv/tier_mover.h"
#include "core/pml/schema.h"

namespace promptcached::engine {

class SchemaStore final : public SchemaRegistry {
 public:
  // Starts encoding every module of a version; `done` is called once, on the engine thread, or before encode returns
  // when the engine takes no more work.
  using Encode = std::function<void(std::shared_ptr<const SchemaVersion>, std::function<void(Status)> done)>;

  // `journal` null: schemas live as long as this does. Else a registration succeeds once it is saved.
  SchemaStore(kv::ModulePool& pool, kv::TierMover& tiers, const pml::ModelText& text, KvIdentity identity,
              const pml::Limits& limits, std::shared_ptr<SchemaJournal> journal, Encode encode);
  ~SchemaStore() override;

  Result<RegisterOutcome> register_schema(std::string_view source, const RegisterOptions& options) override;
  Result<SchemaStatus> dry_run(std::string_view source) override;
  Result<std::shared_ptr<const SchemaVersion>> find(std::string_view name) const override;
  Result<SchemaStatus> status(std::string_view name) const override;
  std::vector<SchemaStatus> list() const override;
  void wait_until_encoded(std::string_view name) const override;
  Status remove(std::string_view name) override;
  Result<SchemaStatus> patch(std::string_view name, const RetentionPatch& schema,
                             const std::vector<std::pair<std::string, RetentionPatch>>& modules) override;
  std::vector<std::string> users(const kv::ModuleKey& key) const override;

  // How long the KV of `key` is to be kept: the longest that any registered schema asks. Nullopt: none uses it.
  std::optional<kv::Retention> retention(const kv::ModuleKey& key) const;
  std::size_t size() const;

 private:
  // A version some schema holds on to, and how long it wants each module kept.
  struct Holding {
    std::shared_ptr<const SchemaVersion> version;
    std::vector<pml::RetentionPolicy> modules;  // by ModuleIndex
    pml::RetentionPolicy schema;
    bool is_saved = false;  // the journal has it
  };
  // A registration whose modules are being encoded.
  struct Pending {
    std::shared_ptr<Holding> holding;
    std::promise<Status> promise;
    std::shared_future<Status> done = promise.get_future().share();
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    double encode_ms = 0;
    bool keep_failure = false;  // nobody waits for the answer, so a failure must stay visible
  };
  struct Record {
    std::shared_ptr<Holding> current;
    std::shared_ptr<Pending> pending;
    std::optional<Error> failure;
    double encode_ms = 0;
  };
  using User = std::pair<const Holding*, pml::EntryIndex>;

  Result<std::shared_ptr<SchemaVersion>> compile(std::string_view source) const;
  void encoded(const std::string& name, const std::shared_ptr<Pending>& pending, const Status& status);
  Status save(const std::string& name, const std::shared_ptr<Pending>& pending);
  void ended(const std::string& name, const std::shared_ptr<Pending>& pending, const Status& status);
  void hold(const Holding& holding);
  void let_go(const Holding& holding);
  void apply_retention(const Holding& holding);
  void retain(const kv::ModuleKey& key, const kv::Retention& retention);
  std::string tier_of(const kv::ModuleKey& key) const;
  std::optional<kv::Retention> retention_locked(const kv::ModuleKey& key) const;
  static void apply_options(Holding& holding, const RegisterOptions& options);
  static StoredSchema to_store(const Holding& holding);
  Status change_retention(const std::shared_ptr<Holding>& holding, const std::function<void(Holding&)>& change);
  SchemaStatus status_of(const Record& record) const;
  SchemaStatus describe(const Holding& holding) const;
  Result<std::map<std::string, Record, std::less<>>::const_iterator> locate(std::string_view name) const;
  Error unknown(std::string_view name) const;

  kv::ModulePool& pool_;
  kv::TierMover& tiers_;
  const pml::ModelText& text_;
  KvIdentity identity_;
  pml::Limits limits_;
  std::shared_ptr<SchemaJournal> journal_;
  Encode encode_;

  // Held by whoever changes what is registered, from before the journal is written until the records say the same: one
  // change after the other. The engine thread never takes it, since the journal may be slow; mutex_ is taken inside it.
  std::mutex changes_;

  // Guards the two maps. Taken by HTTP threads for look-ups, and by the engine thread for retention() and when a
  // registration ends; never held while compiling, encoding or waiting. The locks of pool and tiers may be taken inside
  // it.
  mutable std::mutex mutex_;
  std::map<std::string, Record, std::less<>> records_;
  std::unordered_map<kv::ModuleKey, std::vector<User>, kv::ModuleKeyHash> users_;

  // Registrations that are encoded and wait to be saved, on a thread of their own. Without a journal there is none.
  BoundedQueue<std::function<void()>> saves_;
  std::thread saver_;
};

}  // namespace promptcached::engine
