// FakeEngine: an Engine whose answers a test writes itself, for tests of the routes.
//
// Schemas are compiled by the real compiler and prompts resolved by the real resolver, over WordTokenizer; nothing is
// encoded or generated. submit() hands out streams that hold what the test has put into `script`; with `hold` the test
// pushes the events itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/nearest_name.h"
#include "core/engine/engine.h"
#include "tests/fakes/word_tokenizer.h"

namespace promptcached::fakes {

class FakeRegistry final : public engine::SchemaRegistry {
 public:
  explicit FakeRegistry(const pml::ModelText& text) : text_(text) {}

  Result<engine::RegisterOutcome> register_schema(std::string_view source,
                                                  const engine::RegisterOptions& options) override {
    last_options = options;
    Result<engine::SchemaStatus> status = dry_run(source);
    if (!status) {
      return status.error();
    }
    const std::string name = status->version->schema->name;
    if (options.required_name && *options.required_name != name) {
      return make_error(ErrorCode::kConflict, "the schema is named '" + name + "'");
    }
    const auto known = schemas_.find(name);
    if (options.only_if_new && known != schemas_.end()) {
      return make_error(ErrorCode::kPreconditionFailed, "the schema '" + name + "' exists");
    }
    const bool unchanged =
        known != schemas_.end() && known->second.version->schema->version == status->version->schema->version;
    const bool created = known == schemas_.end();
    if (!options.wait && !unchanged) {
      status->state = engine::SchemaState::kEncoding;
    }
    schemas_[name] = *status;
    return engine::RegisterOutcome{created, unchanged, *status};
  }

  Result<engine::SchemaStatus> dry_run(std::string_view source) override {
    auto schema = pml::compile_schema(source, text_);
    if (!schema) {
      return schema.error();
    }
    auto version = std::make_shared<engine::SchemaVersion>();
    version->schema = *schema;
    engine::SchemaStatus status;
    status.version = version;
    status.retention = version->schema->retention;
    for (std::size_t i = 1; i < version->schema->modules.size(); ++i) {
      status.modules.push_back({&version->schema->modules[i], "device", 64, false, {}});
    }
    return status;
  }

  Result<std::shared_ptr<const engine::SchemaVersion>> find(std::string_view name) const override {
    Result<engine::SchemaStatus> found = status(name);
    if (!found) {
      return found.error();
    }
    return found->version;
  }

  Result<engine::SchemaStatus> status(std::string_view name) const override {
    const auto found = schemas_.find(name);
    if (found == schemas_.end()) {
      std::vector<std::string> known;
      for (const auto& [other, unused] : schemas_) {
        known.push_back(other);
      }
      return make_error(ErrorCode::kUnknownSchema,
                        "there is no schema '" + std::string(name) + "'" + did_you_mean(name, known));
    }
    return found->second;
  }

  std::vector<engine::SchemaStatus> list() const override {
    std::vector<engine::SchemaStatus> all;
    for (const auto& [name, status] : schemas_) {
      all.push_back(status);
    }
    return all;
  }

  void wait_until_encoded(std::string_view) const override {}

  Status remove(std::string_view name) override {
    Result<engine::SchemaStatus> found = status(name);
    if (!found) {
      return found.error();
    }
    schemas_.erase(schemas_.find(name));
    return {};
  }

  Result<engine::SchemaStatus> patch(
      std::string_view name, const engine::RetentionPatch& schema,
      const std::vector<std::pair<std::string, engine::RetentionPatch>>& modules) override {
    last_patch = schema;
    last_module_patches = modules;
    return status(name);
  }

  std::vector<std::string> users(const kv::ModuleKey&) const override { return {}; }

  engine::RegisterOptions last_options;
  engine::RetentionPatch last_patch;
  std::vector<std::pair<std::string, engine::RetentionPatch>> last_module_patches;

 private:
  const pml::ModelText& text_;
  std::map<std::string, engine::SchemaStatus, std::less<>> schemas_;
};

class FakeEngine final : public engine::Engine {
 public:
  explicit FakeEngine(std::int32_t max_positions = 1000)
      : registry_(text_), pool_(pool_options(), {1, 1, 4, kernels::KvFormat::kFp32}, kv::make_host_allocator()) {
    text_.tokenizer = std::make_shared<WordTokenizer>();
    text_.roles.user = {"<|im_start|>user\n", "<|im_end|>\n"};
    text_.roles.system = {"<|im_start|>system\n", "<|im_end|>\n"};
    text_.roles.assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
    text_.roles.generation_prompt = "<|im_start|>assistant\n";
    text_.max_positions = max_positions;
    info_.vocab_size = 1000;
    info_.max_positions = max_positions;
    info_.end_tokens = {4};  // <|im_end|>
    // A grammar's texts must be words that are known when the first is compiled.
    grammars_ = std::make_unique<guide::GrammarCompiler>(text_.tokenizer, info_.vocab_size, info_.end_tokens);
  }

  Result<std::shared_ptr<engine::TokenStream>> submit(engine::GenerateRequest request) override {
    requests.push_back(request);
    if (refuse) {
      return *refuse;
    }
    auto stream = std::make_shared<engine::TokenStream>();
    if (hold) {
      const std::lock_guard lock(mutex_);
      held_ = stream;
    } else {
      for (const engine::StreamEvent& event : script) {
        stream->push(event);
      }
    }
    return stream;
  }

  Result<engine::Forecast> forecast(engine::GenerateRequest request) override {
    requests.push_back(std::move(request));
    return next_forecast;
  }

  guide::GrammarCompiler& grammars() override { return *grammars_; }
  engine::SchemaRegistry& schemas() override { return registry_; }
  kv::ModulePool& pool() override { return pool_; }
  kv::TierMover& tiers() override { return tiers_; }
  const pml::ModelText& text() const override { return text_; }
  const model::ModelInfo& model_info() const override { return info_; }
  engine::EngineStatus status() const override { return {}; }
  bool drain(std::chrono::milliseconds) override { return true; }

  FakeRegistry& registry() { return registry_; }
  // With `hold`: the stream of the last request, once there is one.
  std::shared_ptr<engine::TokenStream> held() const {
    const std::lock_guard lock(mutex_);
    return held_;
  }

  std::vector<engine::StreamEvent> script;
  std::optional<Error> refuse;
  engine::Forecast next_forecast;
  bool hold = false;
  std::vector<engine::GenerateRequest> requests;

 private:
  static kv::ModulePool::Options pool_options() {
    kv::ModulePool::Options options;
    options.capacity_bytes = std::size_t{1} << 20;
    return options;
  }

  pml::ModelText text_;
  model::ModelInfo info_;
  FakeRegistry registry_;
  std::unique_ptr<guide::GrammarCompiler> grammars_;
  kv::ModulePool pool_;
  Metrics metrics_{{}};
  kv::TierMover tiers_{{}, pool_, metrics_};
  mutable std::mutex mutex_;
  std::shared_ptr<engine::TokenStream> held_;
};

}  // namespace promptcached::fakes
