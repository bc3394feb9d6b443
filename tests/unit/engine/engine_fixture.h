// What the engine's tests share: an engine over FakeLm, and the answers FakeLm must give, computed from the schema and
// the plan alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "tests/catch.h"
#include "tests/fakes/fake_lm.h"
#include "tests/fakes/word_tokenizer.h"

namespace promptcached::engine {

// FakeLm's digests of everything a plan's tokens attend to, straight from the definitions in core/pml/schema.h.
class ExpectedAnswers {
 public:
  // `schema` may be null: for prompts without modules.
  explicit ExpectedAnswers(std::shared_ptr<const pml::Schema> schema) : schema_(std::move(schema)) {
    for (std::size_t pass = 0; schema_ != nullptr && pass < schema_->passes.size(); ++pass) {
      encode(static_cast<int>(pass));
    }
  }

  std::vector<TokenId> generate(const fakes::FakeLm& lm, const pml::AssemblyPlan& plan, std::int32_t count) const {
    std::vector<std::pair<std::int32_t, std::uint64_t>> visible;  // position, digest
    for (const pml::CachedPart& part : plan.cached) {
      for (const pml::CachedRange& range : part.ranges) {
        for (std::int32_t position = range.start; position < range.end(); ++position) {
          visible.emplace_back(position, text_.at({part.entry, position}));
        }
      }
    }
    const auto add = [&](TokenId token, std::int32_t position) {
      std::uint64_t seen = 0;
      for (const auto& [at, digest] : visible) {
        seen += at < position ? fakes::FakeLm::mix(digest) : 0;
      }
      visible.emplace_back(position, fakes::FakeLm::digest(token, position, seen));
      return visible.back().second;
    };
    std::uint64_t last = 0;
    for (const pml::NewToken& token : plan.new_tokens) {
      last = add(token.token, token.position);
    }
    std::vector<TokenId> answer;
    for (std::int32_t i = 0; i < count; ++i) {
      answer.push_back(static_cast<TokenId>(lm.next_token(last)));
      last = add(answer.back(), plan.next_position + i);
    }
    return answer;
  }

 private:
  using Place = std::pair<pml::EntryIndex, std::int32_t>;  // entry, position

  void encode(int index) {
    const pml::EncodingPass& pass = schema_->passes[static_cast<std::size_t>(index)];
    std::map<std::int32_t, std::uint64_t> context;  // overlapping positions of a scaffold's members are added up
    for (const pml::ContextRef& ref : pass.context) {
      for (const auto* known : {&text_, &placeholders_}) {
        for (const auto& [place, digest] : *known) {
          if (place.first == ref.entry && place.second < ref.limit && (known == &text_ || ref.placeholders)) {
            context[place.second] += fakes::FakeLm::mix(digest);
          }
        }
      }
    }
    struct Row {
      std::int32_t position;
      TokenId token;
      Place place;
      bool is_text;
    };
    std::vector<Row> rows;
    for (const pml::EntryIndex entry : pass.entries) {
      const pml::Module& module =
          schema_->modules[static_cast<std::size_t>(schema_->entries[static_cast<std::size_t>(entry)].module)];
      for (const pml::TokenRun& run : module.text) {
        for (std::size_t i = 0; i < run.tokens.size(); ++i) {
          const std::int32_t position = run.start + static_cast<std::int32_t>(i);
          rows.push_back({position, run.tokens[i], {entry, position}, true});
        }
      }
      for (const pml::Parameter& parameter : module.parameters) {
        for (std::size_t i = 0; i < parameter.placeholder.size(); ++i) {
          const std::int32_t position = parameter.start + static_cast<std::int32_t>(i);
          rows.push_back({position, parameter.placeholder[i], {entry, position}, false});
        }
      }
    }
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.position < b.position; });
    std::uint64_t earlier = 0;
    for (const Row& row : rows) {
      std::uint64_t seen = earlier;
      for (const auto& [position, value] : context) {
        seen += position < row.position ? value : 0;
      }
      const std::uint64_t digest = fakes::FakeLm::digest(row.token, row.position, seen);
      earlier += fakes::FakeLm::mix(digest);
      (row.is_text ? text_ : placeholders_)[row.place] = digest;
    }
  }

  std::shared_ptr<const pml::Schema> schema_;
  std::map<Place, std::uint64_t> text_;
  std::map<Place, std::uint64_t> placeholders_;
};

struct Answer {
  std::optional<StartEvent> start;
  std::vector<TokenEvent> tokens;
  std::optional<DoneEvent> done;
  std::optional<Error> error;
  std::string text() const {
    std::string all;
    for (const TokenEvent& token : tokens) {
      all += token.text;
    }
    return all;
  }
  std::vector<TokenId> ids() const {
    std::vector<TokenId> all;
    for (const TokenEvent& token : tokens) {
      all.push_back(token.token_id);
    }
    return all;
  }
};

inline Answer collect(TokenStream& stream) {
  Answer answer;
  while (!stream.finished()) {
    std::optional<StreamEvent> event = stream.next(std::chrono::seconds(60));
    if (!event.has_value()) {
      FAIL("the stream gave no event for a minute");
    }
    if (auto* start = std::get_if<StartEvent>(&*event)) {
      CHECK_FALSE(answer.start.has_value());
      answer.start = std::move(*start);
    } else if (auto* token = std::get_if<TokenEvent>(&*event)) {
      CHECK(answer.start.has_value());
      answer.tokens.push_back(std::move(*token));
    } else if (auto* done = std::get_if<DoneEvent>(&*event)) {
      answer.done = std::move(*done);
    } else {
      answer.error = std::get<Error>(*event);
    }
  }
  return answer;
}

class EngineFixture {
 public:
  static constexpr std::int32_t kVocab = 512;
  static constexpr std::size_t kTokenBytes = 2 * fakes::FakeLm::kHeadDim * sizeof(float);

  explicit EngineFixture(EngineOptions options = default_options(), std::vector<std::int32_t> end_tokens = {})
      : metrics({{"test", "fake", "cpu", "fp32", "fp32"}, {"generate"}}) {
    options.poison_kv = true;
    options.tiers.host_bytes = options.tiers.host_bytes.value_or(0);
    options.check_kv = true;
    auto model = std::make_unique<fakes::FakeLm>(kVocab, std::move(end_tokens));
    lm = model.get();
    pml::ModelText text;
    text.tokenizer = std::make_shared<fakes::WordTokenizer>();
    std::string vocabulary;  // WordTokenizer hands out ids as it meets words: every id that FakeLm may pick needs one
    for (int i = 0; i < kVocab; ++i) {
      vocabulary += " x" + std::to_string(i);
    }
    REQUIRE(text.tokenizer->encode(vocabulary).ok());
    text.roles = *builtin_role_texts("chatml");
    text.max_positions = 1 << 20;
    engine = Engine::create(options, std::move(model), std::move(text), metrics);
  }

  static EngineOptions default_options() {
    EngineOptions options;
    options.kv_device_bytes = 20000 * kTokenBytes;
    options.block_tokens = 8;
    options.max_batch_tokens = 32;
    options.max_running = 16;
    return options;
  }

  void add_schema(const std::string& source) {
    const auto outcome = engine->schemas().register_schema(source, {});
    if (!outcome.ok()) {
      FAIL("registration failed: " << outcome.error().message);
    }
  }

  GenerateRequest request(const std::string& prompt, std::int32_t max_tokens = 8) {
    const auto document = pml::parse_prompt(prompt);
    if (!document.ok()) {
      FAIL("prompt: " << document.error().message);
    }
    const auto version = engine->schemas().find(pml::schema_name(**document));
    if (!version.ok()) {
      FAIL("schema: " << version.error().message);
    }
    pml::ResolveOptions options;
    options.max_tokens = max_tokens;
    auto plan = pml::resolve((*version)->schema, **document, engine->text(), options);
    if (!plan.ok()) {
      FAIL("plan: " << plan.error().message);
    }
    GenerateRequest made;
    made.id = "gen-test";
    made.version = *version;
    made.plan = std::move(*plan);
    made.sampling.temperature = 0;
    made.max_tokens = max_tokens;
    return made;
  }

  // A prompt of tokens alone.
  static GenerateRequest request(std::vector<TokenId> tokens, std::int32_t max_tokens = 8) {
    GenerateRequest made;
    made.id = "gen-test";
    made.plan = pml::plain_plan(std::move(tokens));
    made.sampling.temperature = 0;
    made.max_tokens = max_tokens;
    return made;
  }

  std::shared_ptr<TokenStream> submit(GenerateRequest made) {
    auto stream = engine->submit(std::move(made));
    if (!stream.ok()) {
      FAIL("submit: " << stream.error().message);
    }
    return *stream;
  }

  Answer run(GenerateRequest made) { return collect(*submit(std::move(made))); }

  std::vector<TokenId> expected(const GenerateRequest& made) const {
    return ExpectedAnswers(made.plan.schema).generate(*lm, made.plan, made.max_tokens);
  }

  // `count` tokens, different for each `seed`.
  static std::vector<TokenId> tokens(int seed, int count) {
    std::vector<TokenId> all;
    for (int i = 0; i < count; ++i) {
      all.push_back((seed * 131 + i * 7) % kVocab);
    }
    return all;
  }

  // `count` words, different for each `seed`.
  static std::string words(int seed, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += (i == 0 ? "w" : " w") + std::to_string((seed * 131 + i * 7) % 97);
    }
    return text;
  }

  Metrics metrics;
  fakes::FakeLm* lm = nullptr;
  std::unique_ptr<Engine> engine;
};

}  // namespace promptcached::engine
