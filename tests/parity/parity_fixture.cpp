#include "tests/parity/parity_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "core/model/causal_lm.h"

namespace promptcached::parity {
namespace {

std::filesystem::path default_model_directory() {
  const char* given = std::getenv("PROMPTCACHED_TEST_MODEL");
  return given != nullptr ? given : PROMPTCACHED_SOURCE_DIR "/models/smollm2-135m-instruct";
}

std::string device() {
  const char* given = std::getenv("PROMPTCACHED_TEST_DEVICE");
  return given != nullptr ? given : "cpu";
}

// Loaded once a model: the default one's holds half a gigabyte.
const DirectPass& direct_pass(const std::filesystem::path& model, DirectPass::Weights weights) {
  static std::map<std::pair<std::filesystem::path, DirectPass::Weights>, std::unique_ptr<DirectPass>> passes;
  std::unique_ptr<DirectPass>& pass = passes[{model, weights}];
  if (pass == nullptr) {
    pass = std::make_unique<DirectPass>(model, weights);
  }
  return *pass;
}

// Lists every token that a plan's answer depends on, and who sees whom, from core/pml/schema.h's definitions.
class DirectPlan {
 public:
  explicit DirectPlan(const pml::Schema& schema) : schema_(schema), done_(schema.passes.size(), false) {}

  void add_prompt(const pml::AssemblyPlan& plan, const std::vector<TokenId>& generated) {
    std::vector<std::size_t> visible;
    for (const pml::CachedPart& part : plan.cached) {
      add_pass(schema_.entries[static_cast<std::size_t>(part.entry)].pass);
      for (const pml::CachedRange& range : part.ranges) {
        for (std::int32_t position = range.start; position < range.end(); ++position) {
          visible.push_back(text_.at({part.entry, position}));
        }
      }
    }
    const auto add = [&](TokenId token, std::int32_t position) {
      add_node(token, position, visible);
      visible.push_back(input_.tokens.size() - 1);
    };
    for (const pml::NewToken& token : plan.new_tokens) {
      add(token.token, token.position);
    }
    input_.rows.push_back(static_cast<std::int32_t>(input_.tokens.size()) - 1);
    for (std::size_t i = 0; i + 1 < generated.size(); ++i) {
      add(generated[i], plan.next_position + static_cast<std::int32_t>(i));
      input_.rows.push_back(static_cast<std::int32_t>(input_.tokens.size()) - 1);
    }
  }

  DirectInput finish() {
    const std::size_t n = input_.tokens.size();
    input_.mask.assign(n * n, 0);
    for (std::size_t row = 0; row < n; ++row) {
      input_.mask[row * n + row] = 1;
      for (const std::size_t column : sees_[row]) {
        input_.mask[row * n + column] = 1;
      }
    }
    return std::move(input_);
  }

 private:
  void add_node(TokenId token, std::int32_t position, const std::vector<std::size_t>& candidates) {
    std::vector<std::size_t> seen;
    for (const std::size_t node : candidates) {
      if (input_.positions[node] < position) {
        seen.push_back(node);
      }
    }
    input_.tokens.push_back(token);
    input_.positions.push_back(position);
    sees_.push_back(std::move(seen));
  }

  void add_pass(int index) {
    if (done_[static_cast<std::size_t>(index)]) {
      return;
    }
    done_[static_cast<std::size_t>(index)] = true;
    const pml::EncodingPass& pass = schema_.passes[static_cast<std::size_t>(index)];
    std::vector<std::size_t> visible;
    for (const pml::ContextRef& ref : pass.context) {
      add_pass(schema_.entries[static_cast<std::size_t>(ref.entry)].pass);
      for (const auto* nodes : {&text_, &placeholders_}) {
        for (const auto& [place, node] : *nodes) {
          if (place.first == ref.entry && place.second < ref.limit && (nodes == &text_ || ref.placeholders)) {
            visible.push_back(node);
          }
        }
      }
    }
    std::vector<std::tuple<std::int32_t, TokenId, pml::EntryIndex, bool>> tokens;  // position first: sorted by it
    for (const pml::EntryIndex entry : pass.entries) {
      const pml::ModuleIndex module = schema_.entries[static_cast<std::size_t>(entry)].module;
      for (const pml::TokenRun& run : schema_.modules[static_cast<std::size_t>(module)].text) {
        for (std::size_t i = 0; i < run.tokens.size(); ++i) {
          tokens.emplace_back(run.start + static_cast<std::int32_t>(i), run.tokens[i], entry, true);
        }
      }
      for (const pml::Parameter& parameter : schema_.modules[static_cast<std::size_t>(module)].parameters) {
        for (std::size_t i = 0; i < parameter.placeholder.size(); ++i) {
          tokens.emplace_back(parameter.start + static_cast<std::int32_t>(i), parameter.placeholder[i], entry, false);
        }
      }
    }
    std::sort(tokens.begin(), tokens.end());
    for (const auto& [position, token, entry, is_text] : tokens) {
      add_node(token, position, visible);
      visible.push_back(input_.tokens.size() - 1);
      (is_text ? text_ : placeholders_)[{entry, position}] = input_.tokens.size() - 1;
    }
  }

  const pml::Schema& schema_;
  std::vector<bool> done_;
  DirectInput input_;
  std::vector<std::vector<std::size_t>> sees_;
  std::map<std::pair<pml::EntryIndex, std::int32_t>, std::size_t> text_;
  std::map<std::pair<pml::EntryIndex, std::int32_t>, std::size_t> placeholders_;
};

}  // namespace

// Keeps a copy of every logits row that the engine asked for.
class ParityFixture::RecordingLm final : public model::CausalLm {
 public:
  explicit RecordingLm(std::unique_ptr<model::CausalLm> model) : model_(std::move(model)) {}
  const model::ModelInfo& info() const override { return model_->info(); }
  model::Logits forward(const model::ForwardBatch& batch) override {
    const model::Logits logits = model_->forward(batch);
    for (std::int32_t row = 0; row < logits.rows; ++row) {
      rows.emplace_back(logits.row(row), logits.row(row) + logits.vocab_size);
    }
    return logits;
  }
  std::byte* allocate_kv(std::size_t bytes) override { return model_->allocate_kv(bytes); }
  void deallocate_kv(std::byte* data, std::size_t bytes) override { model_->deallocate_kv(data, bytes); }
  void poison_kv(std::byte* data, std::size_t bytes) override { model_->poison_kv(data, bytes); }
  std::size_t free_memory_bytes() const override { return model_->free_memory_bytes(); }

  std::vector<std::vector<float>> rows;  // read only while the engine rests

 private:
  std::unique_ptr<model::CausalLm> model_;
};

ParityFixture::ParityFixture(const Options& options)
    : metrics_({{"test", "default", device(), options.weights, options.kv_dtype}, {"generate"}}),
      model_(options.model.empty() ? default_model_directory() : options.model),
      weights_(options.weights == "int8" ? DirectPass::Weights::kInt8 : DirectPass::Weights::kAsStored) {
  model::LoadOptions load;
  load.path = model_;
  load.device = device();
  load.weights = options.weights;
  load.kv_dtype = options.kv_dtype;
  auto recorder = std::make_unique<RecordingLm>(model::load_model(load));
  recorder_ = recorder.get();
  pml::ModelText text;
  text.tokenizer = options.tokenizer != nullptr ? options.tokenizer : load_tokenizer(model_);
  text.roles = load_role_texts(model_);
  text.max_positions = recorder->info().max_positions;
  engine::EngineOptions engine_options;
  engine_options.kv_device_bytes = options.kv_bytes;
  engine_options.max_batch_tokens = options.max_batch_tokens;
  engine_options.poison_kv = true;
  engine_options.tiers = options.tiers;
  engine_options.check_kv = true;
  engine_ = engine::Engine::create(engine_options, std::move(recorder), std::move(text), metrics_);
}

ParityFixture::~ParityFixture() = default;

bool ParityFixture::computes_on_gpu() { return device() != "cpu"; }

bool ParityFixture::skipped() {
  static const bool is_missing = [] {
    if (device() == "cpu") {
      return false;
    }
    try {
      ParityFixture probe;
      return false;
    } catch (const std::exception& fault) {
      WARN("SKIPPED on " << device() << ": " << fault.what());
      return true;
    }
  }();
  return is_missing;
}

void ParityFixture::add_schema(const std::string& source) {
  const auto outcome = engine_->schemas().register_schema(source, {});
  if (!outcome.ok()) {
    FAIL("registration failed: " << outcome.error().message);
  }
}

engine::GenerateRequest ParityFixture::request(const std::string& prompt, std::int32_t max_tokens) {
  const auto document = pml::parse_prompt(prompt);
  if (!document.ok()) {
    FAIL("prompt: " << document.error().message);
  }
  const auto version = engine_->schemas().find(pml::schema_name(**document));
  if (!version.ok()) {
    FAIL("schema: " << version.error().message);
  }
  pml::ResolveOptions options;
  options.max_tokens = max_tokens;
  auto plan = pml::resolve((*version)->schema, **document, engine_->text(), options);
  if (!plan.ok()) {
    FAIL("plan: " << plan.error().message);
  }
  engine::GenerateRequest made;
  made.id = "gen-parity";
  made.version = *version;
  made.plan = std::move(*plan);
  made.sampling.temperature = 0;
  made.max_tokens = max_tokens;
  made.ignore_eos = true;
  return made;
}

namespace {

Outcome collect(engine::TokenStream& stream) {
  Outcome outcome;
  while (!stream.finished()) {
    const auto event = stream.next(std::chrono::minutes(5));
    REQUIRE(event.has_value());
    if (const auto* start = std::get_if<engine::StartEvent>(&*event)) {
      outcome.usage = start->usage;
      outcome.cache = start->cache;
    } else if (const auto* token = std::get_if<engine::TokenEvent>(&*event)) {
      outcome.tokens.push_back(token->token_id);
    } else if (const auto* error = std::get_if<Error>(&*event)) {
      FAIL("the request failed: " << error->message);
    }
  }
  return outcome;
}

}  // namespace

Outcome ParityFixture::run(engine::GenerateRequest made) {
  recorder_->rows.clear();
  const auto stream = engine_->submit(std::move(made));
  REQUIRE(stream.ok());
  Outcome outcome = collect(**stream);
  outcome.logits = std::move(recorder_->rows);
  recorder_->rows.clear();
  REQUIRE(outcome.logits.size() == outcome.tokens.size());
  return outcome;
}

std::vector<std::vector<TokenId>> ParityFixture::run_together(std::vector<engine::GenerateRequest> made) {
  std::vector<std::shared_ptr<engine::TokenStream>> streams;
  for (engine::GenerateRequest& one : made) {
    const auto stream = engine_->submit(std::move(one));
    REQUIRE(stream.ok());
    streams.push_back(*stream);
  }
  std::vector<std::vector<TokenId>> answers;
  for (const auto& stream : streams) {
    answers.push_back(collect(*stream).tokens);
  }
  recorder_->rows.clear();
  return answers;
}

std::vector<std::vector<float>> ParityFixture::direct(const engine::GenerateRequest& made,
                                                      const std::vector<TokenId>& generated) {
  DirectPlan plan(*made.version->schema);
  plan.add_prompt(made.plan, generated);
  const DirectPass& pass = direct_pass(model_, weights_);
  const std::vector<float> flat = pass.logits(plan.finish());
  const auto vocab = static_cast<std::size_t>(pass.vocab_size());
  std::vector<std::vector<float>> rows;
  for (std::size_t i = 0; i < generated.size(); ++i) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(i * vocab);
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(vocab));
  }
  return rows;
}

float max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    most = std::isnan(difference) ? std::numeric_limits<float>::infinity() : std::max(most, difference);
  }
  return most;
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float gap(const std::vector<float>& logits, TokenId other) {
  const TokenId best = argmax(logits);
  if (other != best) {
    return logits[static_cast<std::size_t>(best)] - logits[static_cast<std::size_t>(other)];
  }
  float second = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (static_cast<TokenId>(i) != best) {
      second = std::max(second, logits[i]);
    }
  }
  return logits[static_cast<std::size_t>(best)] - second;
}

}  // namespace promptcached::parity
