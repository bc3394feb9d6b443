// The product's promise: cached KV plus new tokens equal a direct forward pass over the same tokens, positions and
// mask.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/parity/parity_fixture.h"
#include "tests/parity/travel.h"

namespace promptcached::parity {
namespace {

constexpr std::int32_t kTokens = 8;
constexpr float kTolerance = 2e-3F;

void check_equal(const Outcome& outcome, const std::vector<std::vector<float>>& direct) {
  for (std::size_t i = 0; i < direct.size(); ++i) {
    INFO("token " << i);
    CHECK(max_difference(outcome.logits[i], direct[i]) <= kTolerance);
    CHECK((outcome.tokens[i] == argmax(direct[i]) || gap(direct[i], outcome.tokens[i]) <= 2 * kTolerance));
  }
}

TEST_CASE("hit, miss and bypass equal the direct pass") {
  if (ParityFixture::skipped()) {
    return;
  }
  for (const std::string mode : {"isolated", "rooted", "contextual"}) {
    DYNAMIC_SECTION(mode) {
      ParityFixture fixture;
      fixture.add_schema(travel(mode));
      for (const std::string& prompt : prompts()) {
        INFO(mode << ": " << prompt);
        const Outcome hit = fixture.run(fixture.request(prompt, kTokens));
        const auto direct = fixture.direct(fixture.request(prompt, kTokens), hit.tokens);
        check_equal(hit, direct);
        CHECK(hit.usage.cached_tokens > 0);

        const Outcome again = fixture.run(fixture.request(prompt, kTokens));
        CHECK(again.tokens == hit.tokens);

        fixture.engine().pool().drop_unpinned();
        const Outcome miss = fixture.run(fixture.request(prompt, kTokens));
        CHECK(miss.usage.cached_tokens == 0);
        check_equal(miss, fixture.direct(fixture.request(prompt, kTokens), miss.tokens));

        engine::GenerateRequest bypass = fixture.request(prompt, kTokens);
        bypass.bypass_cache = true;
        const Outcome bypassed = fixture.run(std::move(bypass));
        check_equal(bypassed, fixture.direct(fixture.request(prompt, kTokens), bypassed.tokens));
      }
    }
  }
}

TEST_CASE("own tokens that were computed for another prompt equal the direct pass") {
  if (ParityFixture::skipped()) {
    return;
  }
  for (const std::string mode : {"isolated", "rooted", "contextual"}) {
    DYNAMIC_SECTION(mode) {
      ParityFixture fixture;
      fixture.add_schema(travel(mode));
      for (const std::string& turn : turns()) {
        INFO(turn);
        const Outcome outcome = fixture.run(fixture.request(turn, kTokens));
        check_equal(outcome, fixture.direct(fixture.request(turn, kTokens), outcome.tokens));
        const engine::CachePartInfo& last = outcome.cache.back();
        CHECK((last.module == "#prefix") == (turn != turns().front()));
        if (last.module == "#prefix" && !ParityFixture::computes_on_gpu()) {
          CHECK(last.tokens > 64);
          CHECK(last.tokens % 64 >= 8);  // so that the beginning of a block was copied
        }
      }
    }
  }
}

// A first difference from the answer given alone may only be at a near tie.
void check_same_but_for_ties(ParityFixture& fixture, const std::string& prompt, const std::vector<TokenId>& answer,
                             const std::vector<TokenId>& alone) {
  REQUIRE(answer.size() == alone.size());
  const auto differ = std::mismatch(answer.begin(), answer.end(), alone.begin());
  if (differ.first == answer.end()) {
    return;
  }
  const auto direct = fixture.direct(fixture.request(prompt, static_cast<std::int32_t>(alone.size())), alone);
  const std::size_t at = static_cast<std::size_t>(differ.first - answer.begin());
  INFO(prompt << ": first difference at token " << at);
  CHECK(gap(direct[at], *differ.first) < kNearTie);
}

TEST_CASE("requests together answer as each does alone") {
  if (ParityFixture::skipped()) {
    return;
  }
  constexpr std::int32_t kLonger = 24;
  ParityFixture fixture;
  fixture.add_schema(travel("rooted"));
  std::vector<std::vector<TokenId>> alone;
  for (const std::string& prompt : prompts()) {
    alone.push_back(fixture.run(fixture.request(prompt, kLonger)).tokens);
  }
  for (int round = 0; round < 2; ++round) {
    if (round == 1) {
      fixture.engine().pool().drop_unpinned();  // together and cold
    }
    std::vector<engine::GenerateRequest> requests;
    for (int copy = 0; copy < 2; ++copy) {
      for (const std::string& prompt : prompts()) {
        requests.push_back(fixture.request(prompt, kLonger));
      }
    }
    const auto answers = fixture.run_together(std::move(requests));
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const std::size_t which = i % prompts().size();
      check_same_but_for_ties(fixture, prompts()[which], answers[i], alone[which]);
    }
  }
}

TEST_CASE("small chunks and a small budget change nothing") {
  if (ParityFixture::skipped()) {
    return;
  }
  ParityFixture::Options options;
  options.max_batch_tokens = 48;
  options.kv_bytes = std::size_t{30} << 20;  // about 650 tokens: modules are evicted and sequences preempted
  ParityFixture fixture(options);
  fixture.add_schema(travel("rooted"));
  std::vector<engine::GenerateRequest> requests;
  for (const std::string& prompt : prompts()) {
    requests.push_back(fixture.request(prompt, kTokens));
  }
  const auto answers = fixture.run_together(std::move(requests));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto direct = fixture.direct(fixture.request(prompts()[i], kTokens), answers[i]);
    for (std::size_t t = 0; t < direct.size(); ++t) {
      INFO(prompts()[i] << ", token " << t);
      CHECK((answers[i][t] == argmax(direct[t]) || gap(direct[t], answers[i][t]) < kNearTie));
    }
  }
}

// What a server on the CPU does by default. Products with 8-bit weights have the same bits in whatever batch, so little
// is left between a hit and a miss; the direct pass multiplies in fp32 with the same rounded weights.
TEST_CASE("with 8-bit weights, too, hit, miss and bypass equal the direct pass") {
  if (ParityFixture::skipped() || ParityFixture::computes_on_gpu()) {
    return;
  }
  for (const std::string kv_dtype : {"fp32", "fp16"}) {
    ParityFixture::Options options;
    options.weights = "int8";
    options.kv_dtype = kv_dtype;
    ParityFixture fixture(options);
    fixture.add_schema(travel("rooted"));
    float from_direct = 0;
    float from_hit = 0;
    for (const std::string& prompt : prompts()) {
      INFO("KV in " << kv_dtype << ": " << prompt);
      const Outcome hit = fixture.run(fixture.request(prompt, kTokens));
      fixture.engine().pool().drop_unpinned();
      const Outcome miss = fixture.run(fixture.request(prompt, kTokens));
      engine::GenerateRequest bypass = fixture.request(prompt, kTokens);
      bypass.bypass_cache = true;
      const Outcome bypassed = fixture.run(std::move(bypass));
      CHECK(hit.usage.cached_tokens > 0);
      CHECK(miss.usage.cached_tokens == 0);
      const auto direct = fixture.direct(fixture.request(prompt, kTokens), hit.tokens);
      for (std::size_t i = 0; i < direct.size(); ++i) {
        INFO("token " << i);
        from_direct = std::max(from_direct, max_difference(hit.logits[i], direct[i]));
        CHECK((hit.tokens[i] == argmax(direct[i]) || gap(direct[i], hit.tokens[i]) < kNearTie));
      }
      for (const Outcome* other : {&miss, &bypassed}) {
        check_same_but_for_ties(fixture, prompt, other->tokens, hit.tokens);
        from_hit = std::max(from_hit, max_difference(other->logits[0], hit.logits[0]));
      }
    }
    INFO("KV in " << kv_dtype << ": " << from_direct << " from the direct pass, " << from_hit << " from a hit");
    CHECK(from_direct <= (kv_dtype == "fp32" ? 3e-2F : 8e-2F));  // inputs are rounded to 16 bits
    CHECK(from_hit <= (kv_dtype == "fp32" ? kTolerance : 5e-2F));
    WARN("KV in " << kv_dtype << ": largest difference of a logit from the direct pass " << from_direct
                  << ", between hit, miss and bypass " << from_hit);
  }
}

TEST_CASE("16-bit KV gives the same text but for near ties") {
  if (ParityFixture::skipped()) {
    return;
  }
  for (const std::string dtype : {"fp16", "bf16"}) {
    DYNAMIC_SECTION(dtype) {
      ParityFixture::Options options;
      options.kv_dtype = dtype;
      ParityFixture fixture(options);
      fixture.add_schema(travel("rooted"));
      for (const std::string& prompt : {prompts()[1], prompts()[4], prompts()[5]}) {
        const Outcome hit = fixture.run(fixture.request(prompt, kTokens));
        const auto direct = fixture.direct(fixture.request(prompt, kTokens), hit.tokens);
        for (std::size_t t = 0; t < direct.size(); ++t) {
          INFO(prompt << ", token " << t);
          CHECK((hit.tokens[t] == argmax(direct[t]) || gap(direct[t], hit.tokens[t]) < kNearTie));
        }
        fixture.engine().pool().drop_unpinned();
        const Outcome miss = fixture.run(fixture.request(prompt, kTokens));
        check_same_but_for_ties(fixture, prompt, miss.tokens, hit.tokens);
      }
    }
  }
}

TEST_CASE("an isolated module's KV does not know what stood before it") {
  if (ParityFixture::skipped()) {
    return;
  }
  // S04 of the public bug reports: B's own answer must not depend on A, unless a scaffold says so.
  const auto schema = [](const std::string& name, const std::string& a, const std::string& scaffold) {
    return "<schema name=\"" + name + "\" attention=\"isolated\"><module name=\"a\">" + a +
           "</module><module name=\"b\">The next number is</module>" + scaffold + "</schema>";
  };
  ParityFixture fixture;
  fixture.add_schema(schema("x", "1 2 3 4", ""));
  fixture.add_schema(schema("y", "5 6 7 8", ""));
  fixture.add_schema(schema("xs", "1 2 3 4", "<scaffold modules=\"a b\"/>"));
  const auto answer = [&](const std::string& name, const std::string& imports) {
    return fixture.run(fixture.request("<prompt schema=\"" + name + "\">" + imports + "</prompt>", 4));
  };
  const Outcome x = answer("x", "<b/>!");
  const Outcome y = answer("y", "<b/>!");
  CHECK(x.tokens == y.tokens);
  CHECK(x.logits == y.logits);
  const Outcome apart = answer("x", "<a/><b/>!");
  const Outcome joint = answer("xs", "<a/><b/>!");
  CHECK(max_difference(apart.logits[0], joint.logits[0]) > kTolerance);
  const auto direct = fixture.direct(fixture.request("<prompt schema=\"xs\"><a/><b/>!</prompt>", 4), joint.tokens);
  check_equal(joint, direct);
}

}  // namespace
}  // namespace promptcached::parity
