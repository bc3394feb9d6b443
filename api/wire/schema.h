// Schemas on the wire: the bodies of POST, PUT and PATCH, and the document that describes a schema.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/http_types.h"
#include "api/json.h"
#include "api/json_reader.h"
#include "core/base/status.h"
#include "core/engine/schema_registry.h"

namespace promptcached::api {

struct WireSchema {
  std::string source;  // PML
  std::optional<bool> pin;
  std::optional<double> ttl_seconds;
  bool wait = true;
  bool dry_run = false;
};

// A PML body, or {"schema", "pin", "ttl_seconds"}; `wait` and `dry_run` come in the query string, as do `pin` and
// `ttl_seconds` beside a PML body. Takes the source out of `request`.
Result<WireSchema> read_schema(HttpRequest& request);

struct WirePatch {
  engine::RetentionPatch schema;
  std::vector<std::pair<std::string, engine::RetentionPatch>> modules;  // by path
};

// {"pin", "ttl_seconds", "priority", "modules": {path: the same}}. Here null is a value: `"ttl_seconds": null` takes
// the time limit away.
Result<WirePatch> read_patch(const HttpRequest& request);

// The fields of these bodies; of the query string beside a PML body; of what stands under a path in `modules`.
JsonFields schema_fields();
JsonFields schema_query_fields();
JsonFields patch_fields();
JsonFields retention_fields();

// Without `modules` and `warnings` when `summary`: for lists.
Json schema_json(const engine::SchemaStatus& status, const std::string& model, bool summary);

}  // namespace promptcached::api
