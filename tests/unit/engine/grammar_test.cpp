// Answers that a grammar holds to: masks, ends, preemption, faults.
#include <atomic>
#include <regex>

#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

// EngineFixture's words are " x0", " x1", …: each a token.
GenerateRequest guided(EngineFixture& fixture, const std::string& regex, int seed, std::int32_t max_tokens = 40) {
  const auto grammar = fixture.engine->grammars().compile({guide::Syntax::kRegex, regex, "response_format"});
  if (!grammar.ok()) {
    FAIL(regex << ": " << grammar.error().message);
  }
  GenerateRequest request = EngineFixture::request(EngineFixture::tokens(seed, 30), max_tokens);
  request.grammar = *grammar;
  request.sampling.temperature = 1;
  request.sampling.seed = static_cast<std::uint64_t>(seed);
  return request;
}

TEST_CASE("an answer keeps to its grammar and stops where nothing can follow") {
  EngineFixture fixture;
  for (const float temperature : {0.0F, 1.0F}) {
    for (int seed = 0; seed < 5; ++seed) {
      GenerateRequest request = guided(fixture, "( x[1-4]){5} x9", seed);
      request.sampling.temperature = temperature;
      const Answer answer = fixture.run(std::move(request));
      REQUIRE(answer.done.has_value());
      CHECK(answer.done->finish_reason == FinishReason::kStop);
      CHECK(answer.tokens.size() == 6);
      CHECK(std::regex_match(answer.text(), std::regex("( x[1-4]){5} x9")));
      // The model's own probability, of a token that it hardly wanted: not that among those allowed.
      CHECK(answer.tokens.back().logprob < -10);
    }
  }
}

TEST_CASE("penalties, bias and top-k choose among what is allowed") {
  EngineFixture fixture;
  const TokenId banned = (*fixture.engine->text().tokenizer->encode(" x7")).front();
  GenerateRequest request = guided(fixture, "( x[1-4]){8}", 1);
  request.sampling.logit_bias[banned] = 100;
  request.sampling.repetition_penalty = 1.5F;
  request.sampling.presence_penalty = 1;
  request.sampling.top_k = 3;
  request.sampling.top_p = 0.9F;
  request.sampling.min_p = 0.05F;
  CHECK(std::regex_match(fixture.run(std::move(request)).text(), std::regex("( x[1-4]){8}")));
}

TEST_CASE("max_tokens cuts an answer, and a stop string ends it") {
  EngineFixture fixture;
  const Answer cut = fixture.run(guided(fixture, "( x[1-4]){20}", 1, 6));
  REQUIRE(cut.done.has_value());
  CHECK(cut.done->finish_reason == FinishReason::kLength);
  CHECK(cut.tokens.size() == 6);
  const Answer whole = fixture.run(guided(fixture, "( x[1-4]){6}", 1, 6));
  CHECK(whole.done->finish_reason == FinishReason::kStop);
  GenerateRequest request = guided(fixture, "( x[1-4]){3} stop.*", 1);
  request.stop = {" x1 x", " x2 x", " x3 x", " x4 x"};
  const Answer stopped = fixture.run(std::move(request));
  CHECK(stopped.done->finish_reason == FinishReason::kStop);
  CHECK(stopped.text().empty());
}

TEST_CASE("an end token is taken where the grammar may end, whatever ignore_eos says") {
  constexpr TokenId kEnd = 100;
  EngineFixture fixture(EngineFixture::default_options(), {kEnd});
  bool ended_late = false;
  for (int seed = 0; seed < 20; ++seed) {
    GenerateRequest request = guided(fixture, "( x[1-2]){2,}", seed, 60);
    request.ignore_eos = true;
    request.sampling.logit_bias[kEnd] = 49;  // about as likely as the model's own favourite
    const Answer answer = fixture.run(std::move(request));
    REQUIRE(answer.done.has_value());
    CHECK(answer.done->finish_reason == FinishReason::kStop);
    CHECK(answer.tokens.size() >= 2);
    CHECK(std::regex_match(answer.text(), std::regex("( x[1-2]){2,}")));
    ended_late = ended_late || answer.tokens.size() > 2;
  }
  CHECK_FALSE(ended_late);  // nothing else has half as much weight
}

TEST_CASE("answers with a grammar are the same alone and preempted") {
  constexpr int kCount = 8;
  const std::string regex = "( x[0-9]){25} x5";
  EngineFixture roomy;
  std::vector<std::string> alone;
  for (int i = 0; i < kCount; ++i) {
    alone.push_back(roomy.run(guided(roomy, regex, i)).text());
    CAPTURE(alone.back());
    CHECK(std::regex_match(alone.back(), std::regex(regex)));
  }
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 130 * EngineFixture::kTokenBytes;  // of 8 times 56 tokens
  options.prefix_cache = false;
  EngineFixture tight(options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < kCount; ++i) {
    streams.push_back(tight.submit(guided(tight, regex, i)));
  }
  for (int i = 0; i < kCount; ++i) {
    const Answer answer = collect(*streams[static_cast<std::size_t>(i)]);
    CHECK(answer.text() == alone[static_cast<std::size_t>(i)]);
    CHECK(answer.done->finish_reason == FinishReason::kStop);
  }
  // More rows than prompts and answers have: some were computed anew.
  CHECK(tight.lm->rows > kCount * (30 + 26));
}

TEST_CASE("sequences with and without grammars share their steps") {
  EngineFixture fixture;
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 6; ++i) {
    streams.push_back(fixture.submit(guided(fixture, "( x[1-4]){12}", i)));
    GenerateRequest plain = EngineFixture::request(EngineFixture::tokens(i + 50, 20), 12);
    expected.push_back(fixture.expected(plain));
    streams.push_back(fixture.submit(std::move(plain)));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::regex_match(collect(*streams[2 * i]).text(), std::regex("( x[1-4]){12}")));
    CHECK(collect(*streams[2 * i + 1]).ids() == expected[i]);
  }
}

TEST_CASE("a cancelled answer with a grammar leaves nothing behind, nor does an engine that goes") {
  auto fixture = std::make_unique<EngineFixture>();
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(fixture->submit(guided(*fixture, "( x[1-4]){500}", i, 1000)));
  }
  REQUIRE(streams[0]->next(std::chrono::seconds(20)).has_value());
  streams[0]->cancel();
  fixture.reset();  // with three of them at work
  for (std::size_t i = 1; i < streams.size(); ++i) {
    CHECK(collect(*streams[i]).error.has_value());
  }
}

}  // namespace
}  // namespace promptcached::engine
