// What the PML tests share: a model made of words, and ways to write down layouts and plans.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/pml/assembly_plan.h"
#include "core/pml/schema.h"
#include "tests/catch.h"
#include "tests/fakes/word_tokenizer.h"
#include "tests/unit/pml/invariants.h"

namespace promptcached::pml {

// Roles as ChatML models have them, over WordTokenizer.
inline ModelText word_model(bool adds_bos = false, std::int32_t max_positions = 1000) {
  fakes::WordTokenizer::Options options;
  options.adds_bos = adds_bos;
  ModelText model;
  model.tokenizer = std::make_shared<fakes::WordTokenizer>(options);
  model.roles.system = {"<|im_start|>system\n", "<|im_end|>\n"};
  model.roles.user = {"<|im_start|>user\n", "<|im_end|>\n"};
  model.roles.assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
  model.roles.generation_prompt = "<|im_start|>assistant\n";
  model.max_positions = max_positions;
  return model;
}

// A schema or a prompt goes through, and everything that must hold of it does.
inline std::shared_ptr<const Schema> compile_ok(std::string_view source, const ModelText& model) {
  auto schema = compile_schema(source, model);
  INFO(source);
  INFO((schema.ok() ? std::string() : schema.error().message));
  REQUIRE(schema.ok());
  REQUIRE(invariants::check_schema(**schema) == "");
  return *schema;
}

inline std::shared_ptr<const Schema> compile_ok(std::string_view source) { return compile_ok(source, word_model()); }

inline Error compile_error(std::string_view source, const ModelText& model) {
  auto schema = compile_schema(source, model);
  INFO(source);
  REQUIRE_FALSE(schema.ok());
  CHECK(schema.error().param == "schema");
  return schema.error();
}

inline Error compile_error(std::string_view source) { return compile_error(source, word_model()); }

inline Result<AssemblyPlan> resolve_source(const std::shared_ptr<const Schema>& schema, std::string_view source,
                                           const ModelText& model, const ResolveOptions& options = {}) {
  auto prompt = parse_prompt(source);
  if (!prompt.ok()) {
    return prompt.error();
  }
  return resolve(schema, **prompt, model, options);
}

// One model with one schema: what most tests of prompts need.
struct Prompts {
  explicit Prompts(std::string_view schema_source, ModelText with = word_model())
      : model(std::move(with)), schema(compile_ok(schema_source, model)) {}

  AssemblyPlan plan(std::string_view source, const ResolveOptions& options = {}) const {
    auto resolved = resolve_source(schema, source, model, options);
    INFO(source);
    INFO((resolved.ok() ? std::string() : resolved.error().message));
    REQUIRE(resolved.ok());
    REQUIRE(invariants::check_plan(*resolved, options, model.max_positions) == "");
    return *resolved;
  }

  Error error(std::string_view source, const ResolveOptions& options = {}) const {
    auto resolved = resolve_source(schema, source, model, options);
    INFO(source);
    REQUIRE_FALSE(resolved.ok());
    CHECK(resolved.error().param == "prompt");
    return resolved.error();
  }

  // The new tokens as "position:text" of each consecutive stretch, joined by '|'.
  std::string new_text(const AssemblyPlan& plan) const {
    std::string text;
    std::int32_t next = -1;
    for (const NewToken& token : plan.new_tokens) {
      if (token.position != next) {
        text += (text.empty() ? "" : "|") + std::to_string(token.position) + ":";
      }
      text += model.tokenizer->decode(std::span(&token.token, 1), false);
      next = token.position + 1;
    }
    return text;
  }

  // Paths of the cached parts, in order; '*' marks a joint encoding.
  std::string cached_paths(const AssemblyPlan& plan) const {
    std::string paths;
    for (const CachedPart& part : plan.cached) {
      const Entry& entry = schema->entries[static_cast<std::size_t>(part.entry)];
      paths += (paths.empty() ? "" : " ") + schema->modules[static_cast<std::size_t>(entry.module)].path;
      paths += entry.scaffold >= 0 ? "*" : "";
    }
    return paths;
  }

  // Everything the model reads, in position order.
  std::string full_text(const AssemblyPlan& plan) const {
    return model.tokenizer->decode(prompt_token_ids(plan), false);
  }

  ModelText model;
  std::shared_ptr<const Schema> schema;
};

// A module's own text as "position:text" for each run, joined by '|'.
inline std::string text_of(const Schema& schema, const ModelText& model, std::string_view path) {
  const Module* module = find_module(schema, path);
  REQUIRE(module != nullptr);
  std::string text;
  for (const TokenRun& run : module->text) {
    text += (text.empty() ? "" : "|") + std::to_string(run.start) + ":" + model.tokenizer->decode(run.tokens, false);
  }
  return text;
}

// The text of one module `m` with this content, without positions: what its whitespace becomes.
inline std::string module_text(const std::string& content, const std::string& schema_attributes = "") {
  const ModelText model = word_model();
  const auto schema = compile_ok(
      "<schema name=\"s\" " + schema_attributes + "><module name=\"m\">" + content + "</module></schema>", model);
  std::string text;
  for (const TokenRun& run : find_module(*schema, "m")->text) {
    text += (text.empty() ? "" : "|") + model.tokenizer->decode(run.tokens, false);
  }
  return text;
}

inline std::string place_of(const Error& error) {
  return error.location ? std::to_string(error.location->line) + ":" + std::to_string(error.location->column) : "none";
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace promptcached::pml
