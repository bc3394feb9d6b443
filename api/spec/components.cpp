#include "api/spec/components.h"

#include <string_view>

namespace promptcached::api {
namespace {

constexpr std::string_view kShared = R"json({
  "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "With --api-keys. The roles are scopes: read, generate, write."}},
  "parameters": {
    "IfNoneMatch": {"name": "If-None-Match", "in": "header", "description": "only if the name is new", "schema": {"enum": ["*"]}}
  },
  "headers": {
    "RequestId": {"description": "the client's own, if it sent a good one", "schema": {"type": "string"}},
    "RetryAfter": {"description": "seconds", "schema": {"type": "integer"}}
  }
})json";

constexpr std::string_view kErrors = R"json({
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {
    "type": "object", "required": ["code", "message", "type", "request_id"], "properties": {
      "code": {"type": "string"}, "message": {"type": "string"}, "request_id": {"type": "string"},
      "type": {"enum": ["invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error"]},
      "param": {"type": "string", "description": "the field at fault"},
      "line": {"type": "integer", "minimum": 1}, "column": {"type": "integer", "minimum": 1}}}}}
})json";

constexpr std::string_view kRequests = R"json({
  "TokenIds": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
  "Message": {"type": "object", "anyOf": [{"required": ["role", "content"]}, {"required": ["role", "tool_calls"]}], "properties": {
    "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
    "content": {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"$ref": "#/components/schemas/Part"}}]},
    "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}}}},
  "Part": {"anyOf": [
    {"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
    {"type": "object", "required": ["type", "schema", "name"], "properties": {"type": {"const": "module"},
      "schema": {"type": "string"}, "name": {"type": "string"}, "args": {"type": ["object", "null"]}}}]},
  "Conversation": {"type": "object", "required": ["messages"], "properties": {
    "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}}}},
  "PlainPrompt": {"type": "object", "required": ["prompt"], "properties": {
    "prompt": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TokenIds"}, {"type": "array", "minItems": 1, "maxItems": 1,
      "items": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TokenIds"}]}}]}}}
})json";

constexpr std::string_view kAnswers = R"json({
  "CacheParts": {"type": "array", "items": {"type": "object", "required": ["module", "tier", "tokens"], "properties": {
    "module": {"type": "string"}, "tier": {"enum": ["device", "host", "disk", "remote", "computed"]}, "tokens": {"type": "integer", "minimum": 0}}}},
  "Answer": {"type": "object", "required": ["id", "model", "schema", "version", "usage", "cache", "text", "finish_reason", "timing"], "properties": {
    "id": {"type": "string"}, "model": {"type": "string"}, "schema": {"type": "string"}, "version": {"type": "string"}, "text": {"type": "string"},
    "finish_reason": {"enum": ["stop", "length", "cancelled", "error"]}, "prompt_text": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "cache": {"$ref": "#/components/schemas/CacheParts"},
    "timing": {"type": "object", "additionalProperties": {"type": "number"}},
    "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/Token"}}}},
  "Explanation": {"type": "object", "required": ["model", "usage", "cache", "compute", "positions", "max_tokens", "predicted", "warnings"], "properties": {
    "model": {"type": "string"}, "schema": {"type": "string"}, "version": {"type": "string"},
    "usage": {"type": "object", "required": ["prompt_tokens", "cached_tokens", "new_tokens"], "additionalProperties": {"type": "integer", "minimum": 0}},
    "cache": {"$ref": "#/components/schemas/CacheParts"},
    "compute": {"type": "object", "required": ["new_tokens", "encode_tokens"], "additionalProperties": {"type": "integer", "minimum": 0}},
    "positions": {"type": "object", "required": ["next", "max", "holes"], "properties": {
      "next": {"type": "integer"}, "max": {"type": "integer"}, "holes": {"type": "array", "items": {
        "type": "object", "required": ["start", "end"], "additionalProperties": {"type": "integer", "minimum": 0}}}}},
    "max_tokens": {"type": "integer", "minimum": 1},
    "predicted": {"type": ["object", "null"], "required": ["queue_ms", "load_ms", "prefill_ms", "ttft_ms"], "additionalProperties": {"type": "number"}},
    "warnings": {"type": "array", "items": {"type": "string"}}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "cached_tokens", "new_tokens", "completion_tokens", "total_tokens"],
    "additionalProperties": {"type": "integer", "minimum": 0}},
  "Token": {"type": "object", "required": ["text", "token_id", "logprob"], "properties": {
    "text": {"type": "string"}, "token_id": {"type": "integer"}, "logprob": {"type": ["number", "null"]},
    "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/Token"}}}},
  "Tokens": {"type": "object", "required": ["tokens", "count", "max_model_len"], "properties": {
    "tokens": {"type": "array", "items": {"type": "integer"}}, "count": {"type": "integer"}, "max_model_len": {"type": "integer"}}}
})json";

constexpr std::string_view kOpenAi = R"json({
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len"], "properties": {
    "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": {"type": "string"}, "max_model_len": {"type": "integer"}}},
  "ModelList": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
  "OpenAiUsage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"], "properties": {
    "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"], "properties": {"cached_tokens": {"type": "integer", "minimum": 0}}}}},
  "Completion": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
    "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/OpenAiUsage"},
    "choices": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["index", "text", "logprobs", "finish_reason"], "properties": {
      "index": {"type": "integer"}, "text": {"type": "string"}, "logprobs": {"type": ["object", "null"]}, "finish_reason": {"enum": ["stop", "length"]}}}}}},
  "ChatCompletion": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
    "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"}, "model": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/OpenAiUsage"},
    "choices": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["index", "message", "logprobs", "finish_reason"], "properties": {
      "index": {"type": "integer"}, "logprobs": {"type": ["object", "null"]}, "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
      "message": {"type": "object", "required": ["role", "content"], "properties": {
        "role": {"const": "assistant"}, "content": {"type": ["string", "null"]}, "tool_calls": {"type": "array", "items": {"type": "object"}}}}}}}}}
})json";

constexpr std::string_view kSchemas = R"json({
  "SchemaSummary": {"type": "object",
    "required": ["name", "version", "state", "model", "positions", "tokens", "kv_bytes", "encode_ms", "attention", "pin", "ttl_seconds", "priority"], "properties": {
      "name": {"type": "string"}, "version": {"type": "string"}, "state": {"enum": ["encoding", "ready", "failed", "dry_run"]}, "model": {"type": "string"},
      "positions": {"type": "integer"}, "tokens": {"type": "integer"}, "kv_bytes": {"type": "integer"}, "encode_ms": {"type": "number"},
      "attention": {"type": "string"}, "pin": {"type": "boolean"}, "ttl_seconds": {"type": ["number", "null"]}, "priority": {"type": "integer"},
      "module_count": {"type": "integer"}}},
  "SchemaList": {"type": "object", "required": ["schemas"], "properties": {"schemas": {"type": "array", "items": {"$ref": "#/components/schemas/SchemaSummary"}}}},
  "Schema": {"allOf": [{"$ref": "#/components/schemas/SchemaSummary"}, {"type": "object", "required": ["modules", "warnings"], "properties": {
    "modules": {"type": "array", "items": {"$ref": "#/components/schemas/Module"}}, "source": {"type": "string"},
    "warnings": {"type": "array", "items": {"type": "object", "required": ["line", "column", "message"]}}}}]},
  "Module": {"type": "object", "required": ["path", "start", "end", "tokens", "tier", "kv_bytes", "shared", "pin", "ttl_seconds", "priority"], "properties": {
    "path": {"type": "string"}, "union": {"type": "integer", "minimum": 1}, "start": {"type": "integer"}, "end": {"type": "integer"}, "tokens": {"type": "integer"},
    "tier": {"enum": ["device", "host", "disk", "remote", "none"]}, "kv_bytes": {"type": "integer"}, "shared": {"type": "boolean"},
    "params": {"type": "array", "items": {"type": "object", "required": ["name", "start", "len"]}},
    "pin": {"type": "boolean"}, "ttl_seconds": {"type": ["number", "null"]}, "priority": {"type": "integer"}}},
  "Cache": {"type": "object", "required": ["tiers", "modules"], "properties": {
    "tiers": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["tier", "capacity_bytes", "used_bytes", "entries"]}},
    "modules": {"type": "array", "items": {"type": "object", "required": ["key", "used_by", "tier", "bytes", "tokens", "pins", "hits", "idle_seconds"]}}}}
})json";

}  // namespace

Json openapi_components() {
  Json components = Json::parse(kShared);
  Json& schemas = components["schemas"];
  for (const std::string_view part : {kErrors, kRequests, kAnswers, kOpenAi, kSchemas}) {
    schemas.update(Json::parse(part));
  }
  return components;
}

std::string_view status_words(int status) {
  switch (status) {
    case 200:
      return "done";
    case 201:
      return "made anew";
    case 202:
      return "begun";
    case 204:
      return "done; there is nothing to say";
    case 400:
      return "the request is wrong: its JSON, a field, its PML or its length";
    case 401:
      return "no good API key";
    case 403:
      return "the API key lacks the scope";
    case 404:
      return "no such schema or model";
    case 409:
      return "in conflict with what is there";
    case 412:
      return "the condition does not hold";
    case 413:
      return "the body is too large";
    case 415:
      return "not a content type, charset or encoding that is taken";
    case 429:
      return "too busy; try again";
    case 503:
      return "loading, shutting down, or too slow; try again";
    case 507:
      return "too large for the cache, or the disk failed";
    default:
      return "";
  }
}

}  // namespace promptcached::api
