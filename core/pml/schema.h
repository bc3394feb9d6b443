// A compiled schema: modules with token ids and position IDs, and how each module's attention states are encoded.
//
// Source of the method: Prompt Cache (arXiv 2311.04934), sections 3.2-3.3. Everything here is immutable once compiled
// and shared by reference; no torch, no KV.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::pml {

// What a module may attend to while it is encoded (docs/pml.md).
enum class AttentionMode { kIsolated, kRooted, kContextual };
std::string_view to_string(AttentionMode mode);

enum class WhitespaceRule { kEdges, kReference };

enum class Role { kSystem, kUser, kAssistant };
std::string_view to_string(Role role);

// <user> or </user>, as written.
struct RoleTag {
  Role role = Role::kUser;
  bool closing = false;
  SourceLocation location;
};

// A role tag of a module's text, with the span of the text chunk that holds it.
struct PlacedRoleTag {
  RoleTag tag;
  std::int32_t start = 0;
  std::int32_t end = 0;
  bool ends_chunk = false;  // nothing but whitespace follows it in its chunk
};

// Consecutive positions and their tokens: tokens[i] stands at position start + i.
struct TokenRun {
  std::int32_t start = 0;
  std::vector<TokenId> tokens;
  std::int32_t end() const { return start + static_cast<std::int32_t>(tokens.size()); }
};

// How long an entry is kept; a module inherits what it does not say from its schema.
struct RetentionPolicy {
  bool pin = false;                   // never evicted
  std::optional<double> ttl_seconds;  // dropped this long after its last use
  int priority = 0;                   // lower priorities are evicted first
};

// A slot of `length` positions inside a module, which a prompt's argument may fill.
struct Parameter {
  std::string name;
  std::int32_t start = 0;
  std::int32_t length = 0;
  std::vector<TokenId> placeholder;  // exactly `length` tokens, used while encoding alone
  SourceLocation location;
};

using ModuleIndex = std::int32_t;
inline constexpr ModuleIndex kRoot = 0;  // the schema's root text, named "#root"

struct Module {
  std::string name;
  std::string path;  // names from the schema down, joined by '/'; "#root" for the root text
  ModuleIndex parent = -1;
  int union_number = 0;                  // 1-based in document order; 0: not in a union
  bool is_union_default = false;         // the member named by its union's `scaffold`
  std::int32_t start = 0;                // first position of its span
  std::int32_t end = 0;                  // one past the last: slots and nested modules included
  std::vector<TokenRun> text;            // its own direct text, in position order; adjacent chunks may be merged
  std::vector<Parameter> parameters;     // in position order
  std::vector<ModuleIndex> children;     // nested modules, union members included, in document order
  std::vector<PlacedRoleTag> role_tags;  // of its own direct text, in document order
  RetentionPolicy retention;
  bool cache = true;  // cache="false": always computed with the request
  SourceLocation location;
  std::int32_t token_count() const;
};

using EntryIndex = std::int32_t;

// One set of attention states: a module encoded as its mode says, or jointly with a scaffold's set.
// `entries[i]` for i < modules.size() is module i's own encoding; joint ones follow.
struct Entry {
  ModuleIndex module = kRoot;
  int scaffold = -1;  // index into Schema::scaffolds for a joint encoding
  int pass = 0;       // index into Schema::passes
};

// Part of another entry that a pass attends to: its tokens at positions below `limit`.
struct ContextRef {
  EntryIndex entry = 0;
  std::int32_t limit = 0;
  bool placeholders = false;  // its slot placeholders are visible as well (contextual mode)
};

// One forward pass that encodes the entries listed. Its tokens are the text and the placeholders of those entries; each
// sees the pass's tokens at smaller positions, and the context's tokens at smaller positions.
// Every context entry belongs to an earlier pass, and has a token below its limit. In `isolated` and `rooted` a pass
// has one entry. A pass may have no tokens (a module that only holds others): there is nothing to compute then.
struct EncodingPass {
  std::vector<EntryIndex> entries;
  std::vector<ContextRef> context;
};

struct Scaffold {
  std::vector<ModuleIndex> modules;  // document order, two or more
  std::vector<EntryIndex> entries;   // the joint entry of each
};

struct Warning {
  SourceLocation location;
  std::string message;
};

struct Schema {
  std::string name;
  std::string version;  // hex SHA-256 of the source and of what was made of it: tokens, positions, passes
  std::string source;   // the PML as registered
  AttentionMode attention = AttentionMode::kRooted;
  WhitespaceRule whitespace = WhitespaceRule::kEdges;
  RetentionPolicy retention;
  std::int32_t positions = 0;    // length of the layout
  std::int32_t token_count = 0;  // of all modules and root text
  std::vector<Module> modules;   // [0] is the root text; document order
  std::vector<Scaffold> scaffolds;
  std::vector<Entry> entries;
  std::vector<EncodingPass> passes;  // in an order in which every context comes first
  std::vector<Warning> warnings;
  std::vector<ModuleIndex> by_path;  // every module, sorted by path: what find_module searches
};

// The limits on hostile input (docs/pml.md).
struct Limits {
  int max_depth = 64;
  std::size_t max_bytes = 8u << 20;
  std::size_t max_nodes = 300000;  // elements, attributes, role tags, comments and the like, all together
};

// What compilation needs to know about the model.
struct ModelText {
  std::shared_ptr<const Tokenizer> tokenizer;
  RoleTexts roles;
  std::int32_t max_positions = 0;  // the model's maximum; a longer schema is refused with both numbers
};

// Parses and lays out `source`. Errors, with param "schema", and line and column where the fault has a place:
// kInvalidPml (whatever has no code of its own, bad attribute values included), kDuplicateName, kUnknownModule and
// kUnionConflict (in a scaffold), kArgumentTooLong (a param's placeholder text), kContextLengthExceeded, kBodyTooLarge.
Result<std::shared_ptr<const Schema>> compile_schema(std::string_view source, const ModelText& model,
                                                     const Limits& limits = {});

// The module at `path` ("outer/inner"; "#root"), or nullptr.
const Module* find_module(const Schema& schema, std::string_view path);

}  // namespace promptcached::pml
