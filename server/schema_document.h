// The document in which a schema is kept on disk.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/engine/schema_journal.h"

namespace promptcached::server {

// A line "promptcached-schema 1 CHECKSUM", then JSON with all there is to the schema, of which CHECKSUM is the SHA-256.
std::string schema_document(const engine::StoredSchema& schema);

// Error kInvalidField, saying what is wrong: no such document, another version of it, cut short, changed.
Result<engine::StoredSchema> read_schema_document(std::string_view document);

}  // namespace promptcached::server
