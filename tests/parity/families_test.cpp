// Every family of models, on tiny random ones: transformers' logits from the direct pass, and the direct pass' logits
// from cached parts. With PROMPTCACHED_MODEL_TABLE=FILE what was measured is written there, as rows of a Markdown table
// (`make models`).
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fakes/word_tokenizer.h"
#include "tests/parity/parity_fixture.h"
#include "tests/parity/travel.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::parity {
namespace {

using model::oracle_path;

constexpr std::int32_t kTokens = 6;
constexpr float kTolerance = 1e-3F;        // of logits, between cached parts and the direct pass; absolute
constexpr double kOracleTolerance = 1e-4;  // relative to the largest logit

// Words as tokens of a small vocabulary: many words share an id.
class SmallVocabulary final : public Tokenizer {
 public:
  explicit SmallVocabulary(std::int32_t size) : size_(size) {}

  Result<std::vector<TokenId>> encode(std::string_view text, bool allow_special = false) const override {
    Result<std::vector<TokenId>> ids = words_.encode(text, allow_special);
    for (TokenId& id : *ids) {
      id %= size_;
    }
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool /*skip_special*/ = true) const override {
    return std::string(ids.size(), '.');
  }
  std::vector<TextPiece> split_control_tokens(std::string_view text) const override { return {std::string(text)}; }
  std::vector<std::pair<std::size_t, std::size_t>> control_token_spans(std::string_view) const override { return {}; }
  std::optional<TokenId> token_to_id(std::string_view token) const override { return words_.token_to_id(token); }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  TokenId placeholder_id() const override { return fakes::WordTokenizer::kUnknown; }
  std::int64_t vocab_size() const override { return size_; }

 private:
  fakes::WordTokenizer words_;
  std::int32_t size_;
};

// What one model showed.
struct Measured {
  std::string architecture;
  double oracle_error = 0;
  float parity_error = 0;
  int agreed = 0;  // tokens that are the direct pass' own choice
  int tokens = 0;
};

double oracle_error(const std::filesystem::path& directory) {
  const DirectPass direct(directory);
  double error = 0;
  for (const std::string kind : {"plain", "holes"}) {
    const model::OracleCase oracle = model::read_oracle(directory / "oracle.safetensors", kind);
    error = std::max(
        error, model::difference(direct.logits({oracle.tokens, oracle.positions, oracle.mask, {}}), oracle.logits));
  }
  return error;
}

void compare(const Outcome& outcome, const std::vector<std::vector<float>>& direct, Measured* measured) {
  for (std::size_t i = 0; i < direct.size(); ++i) {
    measured->parity_error = std::max(measured->parity_error, max_difference(outcome.logits[i], direct[i]));
    const bool is_same = outcome.tokens[i] == argmax(direct[i]);
    measured->agreed += is_same ? 1 : 0;
    measured->tokens += 1;
    INFO("token " << i);
    CHECK(max_difference(outcome.logits[i], direct[i]) < kTolerance);
    CHECK((is_same || gap(direct[i], outcome.tokens[i]) <= 2 * kTolerance));
  }
}

// Every prompt as a hit, as a miss and past the cache.
void measure(ParityFixture& fixture, Measured* measured) {
  for (const std::string& prompt : prompts()) {
    INFO(prompt);
    const auto check = [&](engine::GenerateRequest made) {
      const Outcome outcome = fixture.run(std::move(made));
      compare(outcome, fixture.direct(fixture.request(prompt, kTokens), outcome.tokens), measured);
      return outcome;
    };
    CHECK(check(fixture.request(prompt, kTokens)).usage.cached_tokens > 0);
    fixture.engine().pool().drop_unpinned();
    CHECK(check(fixture.request(prompt, kTokens)).usage.cached_tokens == 0);
    engine::GenerateRequest bypass = fixture.request(prompt, kTokens);
    bypass.bypass_cache = true;
    check(std::move(bypass));
  }
  // Own tokens that an earlier prompt has left: a whole block at least, and the beginning of another.
  for (const std::string& turn : turns()) {
    INFO(turn);
    const Outcome outcome = fixture.run(fixture.request(turn, kTokens));
    compare(outcome, fixture.direct(fixture.request(turn, kTokens), outcome.tokens), measured);
    CHECK((outcome.cache.back().module == "#prefix") == (turn != turns().front()));
  }
}

// All prompts at once, cold and in small chunks: each token must be right for what stands before it.
void measure_together(ParityFixture& fixture, Measured* measured) {
  fixture.engine().pool().drop_unpinned();
  std::vector<engine::GenerateRequest> requests;
  for (const std::string& prompt : prompts()) {
    requests.push_back(fixture.request(prompt, kTokens));
  }
  const auto answers = fixture.run_together(std::move(requests));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    INFO("together: " << prompts()[i]);
    const auto direct = fixture.direct(fixture.request(prompts()[i], kTokens), answers[i]);
    for (std::size_t t = 0; t < direct.size(); ++t) {
      const bool is_same = answers[i][t] == argmax(direct[t]);
      measured->agreed += is_same ? 1 : 0;
      measured->tokens += 1;
      CHECK((is_same || gap(direct[t], answers[i][t]) <= 2 * kTolerance));
    }
  }
}

std::string row_of(const std::string& name, const Measured& measured) {
  std::ostringstream row;
  row << "| " << measured.architecture << " | `" << name << "` | " << std::scientific << std::setprecision(1)
      << measured.oracle_error << " | " << measured.parity_error << " | " << measured.agreed << " of "
      << measured.tokens << " |";
  return row.str();
}

void write_table(std::vector<std::string> rows) {
  const char* path = std::getenv("PROMPTCACHED_MODEL_TABLE");
  if (path == nullptr) {
    return;
  }
  std::sort(rows.begin(), rows.end());
  std::ofstream file(path);
  for (const std::string& row : rows) {
    file << row << "\n";
  }
  REQUIRE(file.good());
}

}  // namespace

// S07 of the public bug reports among them: ALiBi with heads of 80 and 96 dimensions.
TEST_CASE("every family: cached parts equal the direct pass, which equals transformers") {
  if (ParityFixture::skipped()) {
    return;
  }
  std::vector<std::string> rows;
  REQUIRE(model::tiny_models().size() >= 30);
  for (const std::string& name : model::tiny_models()) {
    INFO(name);
    Measured measured;
    measured.oracle_error = oracle_error(oracle_path(name));
    CHECK(measured.oracle_error < kOracleTolerance);
    for (const std::string mode : {"isolated", "rooted", "contextual"}) {
      INFO(mode);
      ParityFixture::Options options;
      options.model = oracle_path(name);
      options.tokenizer = std::make_shared<SmallVocabulary>(model::load(options.model)->info().vocab_size);
      options.kv_bytes = std::size_t{64} << 20;
      options.max_batch_tokens = 48;
      ParityFixture fixture(options);
      measured.architecture = fixture.engine().model_info().architecture;
      fixture.add_schema(travel(mode));
      measure(fixture, &measured);
      measure_together(fixture, &measured);
    }
    CHECK(measured.parity_error < kTolerance);
    rows.push_back(row_of(name, measured));
  }
  write_table(std::move(rows));
}

}  // namespace promptcached::parity
