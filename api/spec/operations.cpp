#include "api/spec/operations.h"

#include "api/openai/chat_wire.h"
#include "api/openai/completion_wire.h"
#include "api/tokenize_route.h"
#include "api/wire/generate.h"
#include "api/wire/schema.h"

namespace promptcached::api {
namespace {

JsonFields no_fields() {
  return fields_asked_for([](ObjectReader& in) { (void)in.finish(); });
}

JsonFields source_fields() {
  return fields_asked_for([](ObjectReader& in) {
    in.boolean("source");
    (void)in.finish();
  });
}

JsonFields tier_fields() {
  return fields_asked_for([](ObjectReader& in) {
    in.text("tier");
    (void)in.finish();
  });
}

// What all routes that generate have; the defaults are the engine's.
Json sampling_details() {
  Json details = Json::parse(R"json({
    "temperature": {"description": "0: the likeliest token, always"},
    "top_k": {"description": "0: off"},
    "repetition_penalty": {"description": "over prompt and answer"},
    "presence_penalty": {"description": "over the answer"},
    "frequency_penalty": {"description": "over the answer"},
    "seed": {"description": "the same seed gives the same answer; by default random"},
    "logit_bias": {"description": "by token id", "propertyNames": {"pattern": "^[0-9]+$"},
                   "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
    "stop": {"description": "texts that end the answer, and are not part of it", "minLength": 1, "items": {"minLength": 1}},
    "ignore_eos": {"description": "go on to the limit of tokens, or to the end of a response_format", "default": false},
    "response_format": {"description": "what the answer must look like", "properties": {
      "type": {"type": ["string", "null"], "enum": ["text", "json_object", "json_schema", "regex", "grammar", null]},
      "json_schema": {"type": ["object", "null"], "description": "a JSON Schema as schema, with a name"},
      "regex": {"type": ["string", "null"]}, "grammar": {"type": ["string", "null"], "description": "in llguidance's form of Lark"}}},
    "add_generation_prompt": {"description": "open the assistant's turn after a closed user turn", "default": true}
  })json");
  const engine::SamplingOptions defaults;
  details["temperature"]["default"] = json_number(defaults.temperature);
  details["top_p"]["default"] = json_number(defaults.top_p);
  details["top_k"]["default"] = defaults.top_k;
  details["min_p"]["default"] = json_number(defaults.min_p);
  details["repetition_penalty"]["default"] = json_number(defaults.repetition_penalty);
  details["presence_penalty"]["default"] = json_number(defaults.presence_penalty);
  details["frequency_penalty"]["default"] = json_number(defaults.frequency_penalty);
  return details;
}

// vLLM's ways to say response_format.
Json guided_details() {
  return Json::parse(R"json({
    "guided_json": {"description": "a JSON Schema, or its text", "type": ["object", "string"]},
    "guided_choice": {"description": "the answer is one of these", "items": {"minLength": 1}},
    "guided_grammar": {"description": "in llguidance's form of Lark"},
    "structured_outputs": {"description": "json, regex, choice or grammar, or json_object: true"}
  })json");
}

Json with_sampling(const char* own) {
  Json details = sampling_details();
  details.update(Json::parse(own));
  return details;
}

Json generate_details() {
  Json details = with_sampling(R"json({
    "prompt": {"description": "PML", "format": "pml", "examples": ["<prompt schema=\"travel\"><maui/><user>What should I pack?</user></prompt>"]},
    "max_tokens": {"description": "not given: 256, or what the context leaves if that is less"},
    "stream": {"description": "false: one JSON document"},
    "logprobs": {"description": "how many of the best tokens to tell beside each", "default": 0},
    "fidelity": {"description": "how exact the reuse is", "enum": ["modular", "exact"], "default": "modular"},
    "k": null,
    "cache": {"description": "bypass: compute everything and keep none of it", "enum": ["use", "bypass"], "default": "use"},
    "echo": {"description": "tell the prompt as the model sees it, in prompt_text", "default": false}
  })json");
  details["stream"]["default"] = WireGenerate().stream;
  return details;
}

Json chat_details() {
  Json details = with_sampling(R"json({
    "model": {"description": "the served name; empty: whichever is served"},
    "messages": {"minItems": 1, "items": {"$ref": "#/components/schemas/Message"}},
    "n": {"default": 1}, "stream": {"default": false}, "logprobs": {"default": false}, "top_logprobs": {"description": "with logprobs: true", "default": 0},
    "stream_options": {"description": "with stream: true", "properties": {"include_usage": {"type": ["boolean", "null"]}}},
    "max_tokens": {"description": "max_completion_tokens, as it was called before"},
    "modalities": {"const": ["text"]},
    "tool_choice": {"description": "auto, none, required, or a function by its name"},
    "tools": {"description": "functions, where the chat template knows tools", "items": {"type": "object"}},
    "chat_template_kwargs": {"description": "more variables for the chat template"},
    "prompt_cache": {"description": "modules in front of the messages: {\"schema\": NAME, \"modules\": {PATH: {PARAMETER: TEXT}}, \"fidelity\": \"exact\"}"},
    "functions": null, "function_call": null, "audio": null, "web_search_options": null
  })json");
  details.update(guided_details());
  return details;
}

Json completion_details() {
  Json details = with_sampling(R"json({
    "model": {"description": "the served name; empty: whichever is served"},
    "prompt": {"description": "a text, token ids, or a list of either", "anyOf": [
      {"type": "string"}, {"$ref": "#/components/schemas/TokenIds"},
      {"type": "array", "minItems": 1, "maxItems": 128, "items": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TokenIds"}]}}]},
    "max_tokens": {"default": 16},
    "n": {"description": "for each prompt", "default": 1}, "best_of": {"description": "must equal n"},
    "stream": {"default": false}, "echo": {"description": "the prompt in front of its answers", "default": false},
    "stream_options": {"description": "with stream: true", "properties": {"include_usage": {"type": ["boolean", "null"]}}},
    "suffix": null
  })json");
  details.update(guided_details());
  return details;
}

Json tokenize_details() { return Json::parse(R"json({"add_special_tokens": {"default": true}})json"); }

Json detokenize_details() {
  return Json::parse(R"json({"tokens": {"items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}})json");
}

Json schema_details() {
  return Json::parse(R"json({
    "schema": {"description": "PML", "format": "pml", "examples": ["<schema name=\"travel\"><module name=\"maui\">Maui has beaches.</module></schema>"]},
    "pin": {"description": "never evict its modules"},
    "ttl_seconds": {"description": "how long after its last use a module may be kept"},
    "wait": {"description": "false: answer 202 while encoding goes on", "default": true},
    "dry_run": {"description": "parse and lay out only", "default": false}
  })json");
}

Json patch_details() {
  return Json::parse(R"json({
    "modules": {"description": "by path", "additionalProperties": {"$ref": "#/components/schemas/Retention"}}
  })json");
}

Json query_details() {
  return Json::parse(R"json({
    "source": {"description": "its PML too, as source", "default": false},
    "tier": {"description": "one that the server has", "enum": ["device", "host", "disk", "remote"], "default": "device"}
  })json");
}

constexpr const char* kSchema = R"({"$ref": "#/components/schemas/Schema"})";
constexpr const char* kAnything = R"({"type": "object"})";

// A schema is sent, and registered.
Operation upload(std::string_view method, std::string_view path, std::string_view summary) {
  return {.method = method,
          .path = path,
          .summary = summary,
          .answers = {{200, kSchema}, {201, kSchema}, {202, kSchema}},
          .refusals = {409, 412, 429, 507},
          .body = schema_fields,
          .pml = true,
          .query = schema_query_fields,
          .details = schema_details,
          .header = "IfNoneMatch"};
}

// docs/api.md has the words at length.
const std::vector<Operation>& list() {
  static const std::vector<Operation> operations = {
      {.method = "POST",
       .path = "/generate",
       .summary = "Answer a prompt, streamed or not",
       .answers = {{200, R"({"$ref": "#/components/schemas/Answer"})", true}},
       .refusals = {404, 429, 507},
       .body = generate_fields,
       .pml = true,
       .query = generate_fields,
       .details = generate_details},
      {.method = "POST",
       .path = "/explain",
       .summary = "What a request of /generate or of OpenAI's routes would come to",
       .answers = {{200, R"({"$ref": "#/components/schemas/Explanation"})"}},
       .refusals = {404, 429, 507},
       .body = generate_fields,
       .other_bodies = {"Conversation", "PlainPrompt"},
       .pml = true,
       .query = generate_fields,
       .details = generate_details},
      {.method = "GET",
       .path = "/v1/models",
       .summary = "The model, as OpenAI's clients ask for it",
       .answers = {{200, R"({"$ref": "#/components/schemas/ModelList"})"}}},
      {.method = "GET",
       .path = "/v1/models/{model}",
       .summary = "The model by its name",
       .answers = {{200, R"({"$ref": "#/components/schemas/Model"})"}}},
      {.method = "POST",
       .path = "/v1/completions",
       .summary = "Continue prompts, as OpenAI's clients ask for it",
       .answers = {{200, R"({"$ref": "#/components/schemas/Completion"})", true}},
       .refusals = {404, 429, 507},
       .body = completion_fields,
       .details = completion_details},
      {.method = "POST",
       .path = "/v1/chat/completions",
       .summary = "Answer a conversation, as OpenAI's clients ask for it",
       .answers = {{200, R"({"$ref": "#/components/schemas/ChatCompletion"})", true}},
       .refusals = {404, 429, 507},
       .body = chat_fields,
       .details = chat_details},
      {.method = "POST",
       .path = "/tokenize",
       .summary = "From a text, or messages, to token ids",
       .answers = {{200, R"({"$ref": "#/components/schemas/Tokens"})"}},
       .body = tokenize_fields,
       .other_bodies = {"Conversation"},
       .details = tokenize_details},
      {.method = "POST",
       .path = "/detokenize",
       .summary = "From token ids to their text",
       .answers = {{200,
                    R"({"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]})"}},
       .body = detokenize_fields,
       .details = detokenize_details},
      {.method = "GET",
       .path = "/schemas",
       .summary = "List schemas",
       .answers = {{200, R"({"$ref": "#/components/schemas/SchemaList"})"}},
       .query = no_fields},
      upload("POST", "/schemas", "Register a schema"),
      {.method = "GET",
       .path = "/schemas/{name}",
       .summary = "Show a schema",
       .answers = {{200, kSchema}},
       .query = source_fields,
       .details = query_details},
      upload("PUT", "/schemas/{name}", "Register a schema under the name it must have"),
      {.method = "PATCH",
       .path = "/schemas/{name}",
       .summary = "Change how long a schema is kept",
       .answers = {{200, kSchema}},
       .refusals = {409, 507},
       .body = patch_fields,
       .query = no_fields,
       .details = patch_details},
      {.method = "DELETE",
       .path = "/schemas/{name}",
       .summary = "Remove a schema",
       .answers = {{204, ""}},
       .refusals = {409, 507},
       .query = no_fields},
      {.method = "GET", .path = "/healthz", .summary = "Is the process alive", .answers = {{200, kAnything}}},
      {.method = "GET", .path = "/readyz", .summary = "Can it work", .answers = {{200, kAnything}}, .refusals = {503}},
      {.method = "GET",
       .path = "/metrics",
       .summary = "Metrics in Prometheus' text format",
       .answers = {{200, R"({"type": "string"})"}}},
      {.method = "GET",
       .path = "/cache",
       .summary = "What is in the cache",
       .answers = {{200, R"({"$ref": "#/components/schemas/Cache"})"}}},
      {.method = "DELETE",
       .path = "/cache",
       .summary = "Drop what is unpinned",
       .answers =
           {{200,
             R"({"type": "object", "properties": {"freed_bytes": {"type": "integer", "minimum": 0}}, "required": ["freed_bytes"]})"}},
       .query = tier_fields,
       .details = query_details},
      {.method = "GET", .path = "/openapi.json", .summary = "This document", .answers = {{200, kAnything}}},
  };
  return operations;
}

}  // namespace

std::span<const Operation> operations() { return list(); }

}  // namespace promptcached::api
