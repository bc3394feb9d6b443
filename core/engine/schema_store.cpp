#include "core/engine/schema_store.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/base/nearest_name.h"

namespace promptcached::engine {
namespace {

kv::Retention to_kv(const pml::RetentionPolicy& policy) {
  kv::Retention retention;
  retention.pin = policy.pin;
  retention.priority = policy.priority;
  if (policy.ttl_seconds.has_value()) {
    retention.ttl = std::chrono::duration<double>(*policy.ttl_seconds);
  }
  return retention;
}

// The longer of two: what several schemas share is kept as long as any of them asks.
kv::Retention longer(const kv::Retention& a, const kv::Retention& b) {
  kv::Retention both;
  both.pin = a.pin || b.pin;
  both.priority = std::max(a.priority, b.priority);
  if (a.ttl.has_value() && b.ttl.has_value()) {
    both.ttl = std::max(*a.ttl, *b.ttl);
  }
  return both;
}

void apply(pml::RetentionPolicy& policy, const RetentionPatch& patch) {
  policy.pin = patch.pin.value_or(policy.pin);
  policy.ttl_seconds = patch.ttl_seconds.value_or(policy.ttl_seconds);
  policy.priority = patch.priority.value_or(policy.priority);
}

const pml::Module& module_of(const pml::Schema& schema, pml::EntryIndex entry) {
  const pml::ModuleIndex module = schema.entries[static_cast<std::size_t>(entry)].module;
  return schema.modules[static_cast<std::size_t>(module)];
}

std::size_t module_index(const pml::Schema& schema, const pml::Module& module) {
  return static_cast<std::size_t>(&module - schema.modules.data());
}

}  // namespace

std::string_view to_string(SchemaState state) {
  switch (state) {
    case SchemaState::kEncoding:
      return "encoding";
    case SchemaState::kReady:
      return "ready";
    case SchemaState::kFailed:
      return "failed";
  }
  return "failed";
}

SchemaStore::SchemaStore(kv::ModulePool& pool, kv::TierMover& tiers, const pml::ModelText& text, KvIdentity identity,
                         const pml::Limits& limits, std::shared_ptr<SchemaJournal> journal, Encode encode)
    : pool_(pool),
      tiers_(tiers),
      text_(text),
      identity_(std::move(identity)),
      limits_(limits),
      journal_(std::move(journal)),
      encode_(std::move(encode)),
      saves_(std::numeric_limits<std::size_t>::max()) {
  if (journal_ != nullptr) {
    saver_ = std::thread([this] {
      while (const std::optional<std::function<void()>> save = saves_.pop()) {
        (*save)();
      }
    });
  }
}

SchemaStore::~SchemaStore() {
  saves_.close();
  if (saver_.joinable()) {
    saver_.join();  // what is in line is still saved: somebody may wait for it
  }
}

Result<std::shared_ptr<SchemaVersion>> SchemaStore::compile(std::string_view source) const {
  Result<std::shared_ptr<const pml::Schema>> schema = pml::compile_schema(source, text_, limits_);
  if (!schema.ok()) {
    return schema.error();
  }
  auto version = std::make_shared<SchemaVersion>();
  version->schema = *schema;
  version->keys = module_keys(**schema, identity_);
  return version;
}

Result<RegisterOutcome> SchemaStore::register_schema(std::string_view source, const RegisterOptions& options) {
  Result<std::shared_ptr<SchemaVersion>> version = compile(source);
  if (!version.ok()) {
    return version.error();
  }
  const std::string& name = (*version)->schema->name;
  if (options.required_name.has_value() && *options.required_name != name) {
    return make_error(ErrorCode::kConflict,
                      "the schema's name is '" + name + "', but the address says '" + *options.required_name + "'");
  }
  auto holding = std::make_shared<Holding>();
  holding->version = *version;
  for (const pml::Module& module : (*version)->schema->modules) {
    holding->modules.push_back(module.retention);
  }
  holding->schema = (*version)->schema->retention;
  apply_options(*holding, options);
  holding->is_saved = journal_ != nullptr && options.retention.has_value();  // that is where it comes from

  RegisterOutcome outcome;
  std::shared_ptr<Pending> pending;
  bool is_mine = false;
  {
    const std::lock_guard changing(changes_);
    std::unique_lock lock(mutex_);
    Record& record = records_[name];
    outcome.created = record.current == nullptr && record.pending == nullptr;
    if (options.only_if_new && !outcome.created) {
      return make_error(ErrorCode::kPreconditionFailed, "a schema named '" + name + "' is registered already");
    }
    const auto is_same = [&](const Holding& other) {
      return other.version->schema->version == (*version)->schema->version;
    };
    if (record.pending == nullptr && record.current != nullptr && !record.failure && is_same(*record.current)) {
      const std::shared_ptr<Holding> current = record.current;
      lock.unlock();
      if (Status kept = change_retention(current, [&](Holding& it) { apply_options(it, options); }); !kept.ok()) {
        return kept.error();
      }
      lock.lock();
      outcome.unchanged = true;
      outcome.status = status_of(record);  // it is still there: to remove it takes changes_
      return outcome;
    }
    pending = record.pending;
    if (pending == nullptr || !is_same(*pending->holding)) {
      if (pending != nullptr) {
        let_go(*pending->holding);
      }
      pending = std::make_shared<Pending>();
      pending->holding = holding;
      pending->keep_failure = !options.wait;
      record.pending = pending;
      record.failure.reset();
      hold(*holding);
      is_mine = true;
    }
    outcome.status = describe(*pending->holding);
    outcome.status.state = SchemaState::kEncoding;
  }
  if (is_mine) {
    encode_(holding->version, [this, name, pending](const Status& done) { encoded(name, pending, done); });
  }
  if (!options.wait) {
    return outcome;
  }
  if (const Status done = pending->done.get(); !done.ok()) {
    return done.error();
  }
  Result<SchemaStatus> now = status(name);
  if (!now.ok()) {
    return now.error();
  }
  outcome.status = std::move(*now);
  return outcome;
}

void SchemaStore::apply_options(Holding& holding, const RegisterOptions& options) {
  if (options.retention.has_value()) {
    holding.schema = options.retention->schema;
    for (const auto& [path, policy] : options.retention->modules) {
      if (const pml::Module* const module = pml::find_module(*holding.version->schema, path); module != nullptr) {
        holding.modules[module_index(*holding.version->schema, *module)] = policy;
      }
    }
    return;
  }
  RetentionPatch patch;
  patch.pin = options.pin;
  if (options.ttl_seconds.has_value()) {
    patch.ttl_seconds = options.ttl_seconds;
  }
  apply(holding.schema, patch);
  for (pml::RetentionPolicy& policy : holding.modules) {
    apply(policy, patch);
  }
}

// On the engine thread, which the disk must not hold up.
void SchemaStore::encoded(const std::string& name, const std::shared_ptr<Pending>& pending, const Status& status) {
  pending->encode_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - pending->began).count();
  if (journal_ == nullptr || !status.ok()) {
    ended(name, pending, status);
    return;
  }
  saves_.try_push([this, name, pending] {
    const std::lock_guard changing(changes_);
    ended(name, pending, save(name, pending));
  });
}

Status SchemaStore::save(const std::string& name, const std::shared_ptr<Pending>& pending) {
  StoredSchema schema;
  {
    const std::lock_guard lock(mutex_);
    const auto found = records_.find(name);
    if (found == records_.end() || found->second.pending != pending) {
      return {};  // overtaken or deleted: ended() says so
    }
    schema = to_store(*pending->holding);
  }
  const Status saved = journal_->save(schema);
  pending->holding->is_saved = pending->holding->is_saved || saved.ok();
  return saved;
}

StoredSchema SchemaStore::to_store(const Holding& holding) {
  const pml::Schema& schema = *holding.version->schema;
  StoredSchema stored{.name = schema.name, .source = schema.source, .retention = {}};
  stored.retention.schema = holding.schema;
  for (std::size_t i = 0; i < schema.modules.size(); ++i) {
    stored.retention.modules.emplace_back(schema.modules[i].path, holding.modules[i]);
  }
  return stored;
}

// A registration has ended. One that was overtaken by a newer one, or deleted, changes nothing any more.
void SchemaStore::ended(const std::string& name, const std::shared_ptr<Pending>& pending, const Status& status) {
  Status answer = status;
  {
    const std::lock_guard lock(mutex_);
    const auto found = records_.find(name);
    if (found == records_.end() || found->second.pending != pending) {
      if (status.ok()) {
        answer = make_error(ErrorCode::kConflict, "schema '" + name +
                                                      "' was replaced or deleted while this registration was being "
                                                      "encoded");
      }
    } else if (Record& record = found->second; status.ok()) {
      record.encode_ms = pending->encode_ms;
      if (record.current != nullptr) {
        let_go(*record.current);
      }
      record.current = pending->holding;
      record.pending = nullptr;
    } else {
      let_go(*pending->holding);
      record.pending = nullptr;
      if (record.current == nullptr && !pending->keep_failure) {
        records_.erase(found);
      } else if (record.current == nullptr) {
        record.failure = status.error();
        record.current = pending->holding;  // to be looked at; find() refuses it
        hold(*record.current);
      }
    }
  }
  pending->promise.set_value(answer);
}

Result<SchemaStatus> SchemaStore::dry_run(std::string_view source) {
  Result<std::shared_ptr<SchemaVersion>> version = compile(source);
  if (!version.ok()) {
    return version.error();
  }
  Holding holding;
  holding.version = *version;
  for (const pml::Module& module : (*version)->schema->modules) {
    holding.modules.push_back(module.retention);
  }
  holding.schema = (*version)->schema->retention;
  const std::lock_guard lock(mutex_);
  return describe(holding);
}

Error SchemaStore::unknown(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& [other, record] : records_) {
    known.push_back(other);
  }
  return make_error(ErrorCode::kUnknownSchema,
                    "no schema named '" + std::string(name) + "' is registered" + did_you_mean(name, known));
}

Result<std::map<std::string, SchemaStore::Record, std::less<>>::const_iterator> SchemaStore::locate(
    std::string_view name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) {
    return unknown(name);
  }
  return found;
}

Result<std::shared_ptr<const SchemaVersion>> SchemaStore::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = locate(name);
  if (!found.ok()) {
    return found.error();
  }
  const Record& record = (*found)->second;
  if (record.failure.has_value()) {
    Error error = *record.failure;
    error.message = "schema '" + std::string(name) + "' could not be encoded: " + error.message;
    return error;
  }
  // A new schema can be used while its modules are still being encoded: what is missing is encoded for the request.
  return record.current != nullptr ? record.current->version : record.pending->holding->version;
}

Result<SchemaStatus> SchemaStore::status(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = locate(name);
  if (!found.ok()) {
    return found.error();
  }
  return status_of((*found)->second);
}

std::vector<SchemaStatus> SchemaStore::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<SchemaStatus> all;
  for (const auto& [name, record] : records_) {
    all.push_back(status_of(record));
  }
  return all;
}

void SchemaStore::wait_until_encoded(std::string_view name) const {
  std::shared_future<Status> done;
  {
    const std::lock_guard lock(mutex_);
    const auto found = records_.find(name);
    if (found == records_.end() || found->second.pending == nullptr) {
      return;
    }
    done = found->second.pending->done;
  }
  done.wait();
}

Status SchemaStore::remove(std::string_view name) {
  const std::lock_guard changing(changes_);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = locate(name); !found.ok()) {
      return found.error();
    }
  }
  if (journal_ != nullptr) {
    if (Status removed = journal_->remove(name); !removed.ok()) {
      return removed;
    }
  }
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(name);
  if (found == records_.end()) {  // its registration has just failed
    return {};
  }
  for (const Holding* holding : {found->second.current.get(),
                                 found->second.pending == nullptr ? nullptr : found->second.pending->holding.get()}) {
    if (holding != nullptr) {
      let_go(*holding);
    }
  }
  records_.erase(found);
  return {};
}

Result<SchemaStatus> SchemaStore::patch(std::string_view name, const RetentionPatch& schema,
                                        const std::vector<std::pair<std::string, RetentionPatch>>& modules) {
  const std::lock_guard changing(changes_);
  std::shared_ptr<Holding> holding;
  {
    const std::lock_guard lock(mutex_);
    const auto found = locate(name);
    if (!found.ok()) {
      return found.error();
    }
    const Record& record = (*found)->second;
    holding = record.current != nullptr ? record.current : record.pending->holding;
  }
  const pml::Schema& layout = *holding->version->schema;
  for (const auto& [path, patch] : modules) {
    if (pml::find_module(layout, path) == nullptr) {
      std::vector<std::string> known;
      for (const pml::Module& module : layout.modules) {
        known.push_back(module.path);
      }
      return make_error(ErrorCode::kUnknownModule,
                        "schema '" + std::string(name) + "' has no module '" + path + "'" + did_you_mean(path, known),
                        "modules");
    }
  }
  Status changed = change_retention(holding, [&](Holding& it) {
    apply(it.schema, schema);
    for (pml::RetentionPolicy& policy : it.modules) {
      apply(policy, schema);
    }
    for (const auto& [path, patch] : modules) {
      apply(it.modules[module_index(layout, *pml::find_module(layout, path))], patch);
    }
  });
  if (!changed.ok()) {
    return changed.error();
  }
  return status(name);
}

// Saves what a change makes of a holding before it makes it. Called with changes_ held, without which policies do not
// change; mutex_ is for those who read them. What is not saved yet will be, as it is by then.
Status SchemaStore::change_retention(const std::shared_ptr<Holding>& holding,
                                     const std::function<void(Holding&)>& change) {
  Holding changed = *holding;
  change(changed);
  if (holding->is_saved) {
    if (Status saved = journal_->save(to_store(changed)); !saved.ok()) {
      return saved;
    }
  }
  const std::lock_guard lock(mutex_);
  holding->schema = changed.schema;
  holding->modules = std::move(changed.modules);
  apply_retention(*holding);
  return {};
}

std::vector<std::string> SchemaStore::users(const kv::ModuleKey& key) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  const auto found = users_.find(key);
  if (found == users_.end()) {
    return names;
  }
  for (const auto& [holding, index] : found->second) {
    const pml::Schema& schema = *holding->version->schema;
    const int scaffold = schema.entries[static_cast<std::size_t>(index)].scaffold;
    std::string name = schema.name + "/" + module_of(schema, index).path;
    if (scaffold >= 0) {
      name += " (scaffold " + std::to_string(scaffold + 1) + ")";
    }
    names.push_back(std::move(name));
  }
  return names;
}

std::optional<kv::Retention> SchemaStore::retention(const kv::ModuleKey& key) const {
  const std::lock_guard lock(mutex_);
  return retention_locked(key);
}

std::optional<kv::Retention> SchemaStore::retention_locked(const kv::ModuleKey& key) const {
  const auto found = users_.find(key);
  if (found == users_.end()) {
    return std::nullopt;
  }
  std::optional<kv::Retention> longest;
  for (const auto& [holding, index] : found->second) {
    const pml::ModuleIndex module = holding->version->schema->entries[static_cast<std::size_t>(index)].module;
    const kv::Retention wanted = to_kv(holding->modules[static_cast<std::size_t>(module)]);
    longest = longest.has_value() ? longer(*longest, wanted) : wanted;
  }
  return longest;
}

std::size_t SchemaStore::size() const {
  const std::lock_guard lock(mutex_);
  return records_.size();
}

void SchemaStore::hold(const Holding& holding) {
  const std::vector<kv::ModuleKey>& keys = holding.version->keys;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    users_[keys[i]].emplace_back(&holding, static_cast<pml::EntryIndex>(i));
  }
  apply_retention(holding);
}

// KV that no schema uses any more leaves the pool, with its last pin when requests in flight still read it, and the
// tiers below.
void SchemaStore::let_go(const Holding& holding) {
  for (const kv::ModuleKey& key : holding.version->keys) {
    const auto found = users_.find(key);
    if (found == users_.end()) {
      continue;
    }
    std::erase_if(found->second, [&holding](const User& user) { return user.first == &holding; });
    if (found->second.empty()) {
      users_.erase(found);
      pool_.remove(key);
      tiers_.remove(key);
    } else {
      retain(key, *retention_locked(key));
    }
  }
}

void SchemaStore::apply_retention(const Holding& holding) {
  for (const kv::ModuleKey& key : holding.version->keys) {
    if (const std::optional<kv::Retention> wanted = retention_locked(key)) {
      retain(key, *wanted);
    }
  }
}

void SchemaStore::retain(const kv::ModuleKey& key, const kv::Retention& retention) {
  pool_.set_retention(key, retention);
  tiers_.set_retention(key, retention);
}

std::string SchemaStore::tier_of(const kv::ModuleKey& key) const {
  if (pool_.contains(key)) {
    return "device";
  }
  const std::optional<TierLabel> tier = tiers_.find(key);
  return tier.has_value() ? std::string(to_string(*tier)) : "none";
}

SchemaStatus SchemaStore::status_of(const Record& record) const {
  SchemaStatus status = describe(record.current != nullptr ? *record.current : *record.pending->holding);
  status.state = record.failure.has_value()  ? SchemaState::kFailed
                 : record.current == nullptr ? SchemaState::kEncoding
                                             : SchemaState::kReady;
  status.failure = record.failure;
  status.encode_ms = record.encode_ms;
  return status;
}

SchemaStatus SchemaStore::describe(const Holding& holding) const {
  SchemaStatus status;
  status.version = holding.version;
  status.retention = holding.schema;
  const pml::Schema& schema = *holding.version->schema;
  const std::size_t token_bytes = pool_.geometry().bytes_per_token();
  for (std::size_t i = 0; i < schema.entries.size(); ++i) {
    const pml::Module& module = module_of(schema, static_cast<pml::EntryIndex>(i));
    const std::size_t bytes = static_cast<std::size_t>(module.token_count()) * token_bytes;
    status.kv_bytes += bytes;
    if (i == pml::kRoot || i >= schema.modules.size()) {
      continue;
    }
    ModuleStatus row;
    row.module = &module;
    row.kv_bytes = bytes;
    row.retention = holding.modules[i];
    row.tier = tier_of(holding.version->keys[i]);
    if (const auto found = users_.find(holding.version->keys[i]); found != users_.end()) {
      row.shared = std::any_of(found->second.begin(), found->second.end(),
                               [&](const User& user) { return user.first->version->schema->name != schema.name; });
    }
    status.modules.push_back(std::move(row));
  }
  return status;
}

}  // namespace promptcached::engine
