// SchemaRegistry: the schemas that clients have registered, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/engine/schema_journal.h"
#include "core/engine/schema_version.h"
#include "core/kv/module_pool.h"
#include "core/pml/schema.h"

namespace promptcached::engine {

enum class SchemaState { kEncoding, kReady, kFailed };
std::string_view to_string(SchemaState state);

struct RegisterOptions {
  std::optional<std::string> required_name;  // PUT: the schema's own name must equal it
  std::optional<bool> pin;                   // over the schema's own attributes
  std::optional<double> ttl_seconds;
  std::optional<SchemaRetention> retention;  // of a schema that comes back from the journal: over all of these
  bool wait = true;                          // return when every module is encoded
  bool only_if_new = false;                  // If-None-Match: *
};

// Absent fields change nothing. A ttl of std::nullopt inside `ttl_seconds` removes it.
struct RetentionPatch {
  std::optional<bool> pin;
  std::optional<std::optional<double>> ttl_seconds;
  std::optional<int> priority;
};

struct ModuleStatus {
  const pml::Module* module = nullptr;  // into SchemaStatus::version
  std::string tier;                     // the nearest that holds it: "device", "host", "disk", "remote", or "none"
  std::size_t kv_bytes = 0;
  bool shared = false;  // another schema uses the same KV entry
  pml::RetentionPolicy retention;
};

// A snapshot for GET /schemas and the answers of POST and PUT.
struct SchemaStatus {
  std::shared_ptr<const SchemaVersion> version;
  SchemaState state = SchemaState::kReady;
  std::optional<Error> failure;  // with kFailed
  double encode_ms = 0;
  std::size_t kv_bytes = 0;
  pml::RetentionPolicy retention;
  std::vector<ModuleStatus> modules;  // document order, without the root text
};

struct RegisterOutcome {
  bool created = false;    // the name was not there before
  bool unchanged = false;  // the same content was registered already: nothing was computed
  SchemaStatus status;
};

// Thread-safe.
class SchemaRegistry {
 public:
  virtual ~SchemaRegistry() = default;

  // Compiles, and encodes every module. Replaces atomically: until the new version is ready requests get the old one.
  // Errors: those of pml::compile_schema; kConflict (name differs from required_name), kPreconditionFailed,
  // kTooLargeForCache, kDraining; kStorageFailed when it could not be kept durably: then nothing has changed.
  virtual Result<RegisterOutcome> register_schema(std::string_view source, const RegisterOptions& options) = 0;
  // Parses and lays out, and says what registration would answer; changes nothing. state is kReady, tiers as they are.
  virtual Result<SchemaStatus> dry_run(std::string_view source) = 0;

  // Errors: kUnknownSchema, with the nearest known name.
  virtual Result<std::shared_ptr<const SchemaVersion>> find(std::string_view name) const = 0;
  virtual Result<SchemaStatus> status(std::string_view name) const = 0;
  virtual std::vector<SchemaStatus> list() const = 0;  // by name
  // Returns once no registration under this name is in progress, however it ended.
  virtual void wait_until_encoded(std::string_view name) const = 0;
  // At once; KV that no other schema uses is dropped. Errors: kUnknownSchema; kStorageFailed, as above.
  virtual Status remove(std::string_view name) = 0;
  // `modules`: by path. Errors: kUnknownSchema, kUnknownModule; kStorageFailed, as above.
  virtual Result<SchemaStatus> patch(std::string_view name, const RetentionPatch& schema,
                                     const std::vector<std::pair<std::string, RetentionPatch>>& modules) = 0;

  // Who uses an entry of the pool, as "schema/path" (root text: "schema/#root"); a joint encoding adds " (scaffold N)".
  virtual std::vector<std::string> users(const kv::ModuleKey& key) const = 0;
};

}  // namespace promptcached::engine
