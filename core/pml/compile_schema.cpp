// Source to compiled schema: parse, read, lay out, plan the encoding.
#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/sha256.h"
#include "core/pml/encoding_passes.h"
#include "core/pml/layout.h"
#include "core/pml/parser.h"
#include "core/pml/role_lint.h"
#include "core/pml/scaffold_sets.h"
#include "core/pml/schema.h"
#include "core/pml/schema_tree.h"

namespace promptcached::pml {
namespace {

void hash_module(Sha256& hash, const Module& module) {
  hash.update_field("module", module.path);
  for (const TokenRun& run : module.text) {
    hash.update_field("start", run.start);
    hash.update_field("tokens", run.tokens);
  }
  for (const Parameter& parameter : module.parameters) {
    hash.update_field("param", parameter.name);
    hash.update_field("start", parameter.start);
    hash.update_field("placeholder", parameter.placeholder);
  }
}

void hash_pass(Sha256& hash, const EncodingPass& pass) {
  hash.update_field("pass", pass.entries);
  for (const ContextRef& ref : pass.context) {
    hash.update_field("context", ref.entry);
    hash.update_field("limit", ref.limit);
    hash.update_field("placeholders", std::int64_t{ref.placeholders});
  }
}

// The source alone would miss a change of tokenizer or roles; tokens alone would miss retention and cache attributes.
std::string version_of(const Schema& schema) {
  Sha256 hash;
  hash.update_field("source", schema.source);
  hash.update_field("attention", to_string(schema.attention));
  hash.update_field("positions", schema.positions);
  for (const Module& module : schema.modules) {
    hash_module(hash, module);
  }
  for (const EncodingPass& pass : schema.passes) {
    hash_pass(hash, pass);
  }
  for (const Scaffold& scaffold : schema.scaffolds) {
    hash.update_field("scaffold", scaffold.modules);
  }
  return to_hex(hash.digest());
}

Result<std::shared_ptr<const Schema>> compile(std::string_view source, const ModelText& model, const Limits& limits) {
  const Result<Element> document = parse_document(source, limits);
  if (!document.ok()) {
    return document.error();
  }
  Result<SchemaTree> tree = read_schema(*document, limits);
  if (!tree.ok()) {
    return tree.error();
  }
  auto schema = std::make_shared<Schema>();
  schema->name = tree->name;
  schema->source = std::string(source);
  schema->attention = tree->attention;
  schema->whitespace = tree->whitespace;
  schema->retention = tree->retention;
  schema->warnings = std::move(tree->warnings);
  lint_roles(*tree, schema->warnings);
  Status status = lay_out(*tree, model, *schema);
  if (status.ok()) {
    status = resolve_scaffolds(*tree, *schema);
  }
  if (status.ok()) {
    status = plan_encoding(*schema);
  }
  if (!status.ok()) {
    return status.error();
  }
  schema->version = version_of(*schema);
  return std::shared_ptr<const Schema>(std::move(schema));
}

}  // namespace

std::string_view to_string(AttentionMode mode) {
  switch (mode) {
    case AttentionMode::kIsolated:
      return "isolated";
    case AttentionMode::kRooted:
      return "rooted";
    case AttentionMode::kContextual:
      return "contextual";
  }
  return "rooted";
}

std::int32_t Module::token_count() const {
  std::int32_t count = 0;
  for (const TokenRun& run : text) {
    count += static_cast<std::int32_t>(run.tokens.size());
  }
  return count;
}

Result<std::shared_ptr<const Schema>> compile_schema(std::string_view source, const ModelText& model,
                                                     const Limits& limits) {
  Result<std::shared_ptr<const Schema>> schema = compile(source, model, limits);
  if (schema.ok()) {
    return schema;
  }
  Error error = schema.error();
  error.param = "schema";
  return error;
}

}  // namespace promptcached::pml
