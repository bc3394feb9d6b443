#include "core/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/catch.h"

namespace promptcached::engine {
namespace {

std::vector<float> random_logits(std::size_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab);
  for (float& logit : logits) {
    logit = normal(random);
  }
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = std::exp(static_cast<double>(logits[i]) / temperature);
    total += p[i];
  }
  for (double& value : p) {
    value /= total;
  }
  return p;
}

// How often each token is drawn from one row of logits.
std::map<TokenId, int> draws(SamplingOptions options, const std::vector<float>& logits, int count) {
  std::map<TokenId, int> drawn;
  for (int i = 0; i < count; ++i) {
    options.seed = static_cast<std::uint64_t>(i);
    ++drawn[Sampler(options, {}, 0).sample(logits)->token];
  }
  return drawn;
}

TEST_CASE("greedy takes the best token and reports the model's own logprob") {
  const std::vector<float> logits = random_logits(500, 1);
  SamplingOptions options;
  options.temperature = 0;
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  Sampler sampler(options, {}, 5);
  const auto sampled = sampler.sample(logits);
  REQUIRE(sampled.ok());
  CHECK(sampled->token == best);
  CHECK(sampled->logprob == Approx(std::log(softmax(logits, 1)[static_cast<std::size_t>(best)])).margin(1e-5));
  REQUIRE(sampled->top.size() == 5);
  CHECK(sampled->top[0].first == best);
  CHECK(sampled->top[0].second >= sampled->top[4].second);
  options.temperature = 1e-5F;
  CHECK(Sampler(options, {}, 0).sample(logits)->token == best);
}

TEST_CASE("sampling follows the distribution at its temperature") {
  const std::vector<float> logits = random_logits(20, 2);
  SamplingOptions options;
  options.temperature = 0.8F;
  constexpr int kDraws = 20000;
  const std::vector<double> p = softmax(logits, 0.8);
  for (const auto& [token, count] : draws(options, logits, kDraws)) {
    const double expected = p[static_cast<std::size_t>(token)];
    const double deviation = std::sqrt(expected * (1 - expected) / kDraws);
    CHECK(std::abs(count / static_cast<double>(kDraws) - expected) < 5 * deviation + 1e-4);
  }
}

TEST_CASE("top_k, top_p and min_p keep exactly the tokens they say") {
  const std::vector<float> logits = random_logits(300, 3);
  const std::vector<double> p = softmax(logits, 1);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  const auto rank = [&](TokenId token) {
    return std::find(order.begin(), order.end(), static_cast<std::size_t>(token)) - order.begin();
  };
  SECTION("top_k") {
    SamplingOptions options;
    options.top_k = 4;
    const auto drawn = draws(options, logits, 3000);
    CHECK(drawn.size() == 4);
    for (const auto& [token, count] : drawn) {
      CHECK(rank(token) < 4);
    }
  }
  SECTION("top_p") {
    SamplingOptions options;
    options.top_p = 0.5F;
    double mass = 0;
    std::ptrdiff_t kept = 0;
    while (mass < 0.5) {
      mass += p[order[static_cast<std::size_t>(kept++)]];
    }
    for (const auto& [token, count] : draws(options, logits, 3000)) {
      CHECK(rank(token) < kept);
    }
  }
  SECTION("min_p") {
    SamplingOptions options;
    options.min_p = 0.2F;
    for (const auto& [token, count] : draws(options, logits, 3000)) {
      CHECK(p[static_cast<std::size_t>(token)] >= 0.2 * p[order[0]] * 0.999);
    }
  }
}

TEST_CASE("penalties and bias act as documented") {
  std::vector<float> logits(10, 0.0F);
  logits[3] = 2.0F;
  logits[4] = 1.5F;
  SamplingOptions options;
  options.temperature = 0;
  SECTION("presence") {
    options.presence_penalty = 1.0F;
    Sampler sampler(options, {}, 0);
    CHECK(sampler.sample(logits)->token == 3);
    CHECK(sampler.sample(logits)->token == 4);
  }
  SECTION("frequency") {
    options.frequency_penalty = 0.3F;
    Sampler sampler(options, {}, 0);
    CHECK(sampler.sample(logits)->token == 3);
    CHECK(sampler.sample(logits)->token == 3);
    CHECK(sampler.sample(logits)->token == 4);
  }
  SECTION("repetition covers the prompt") {
    options.repetition_penalty = 2.0F;
    const std::vector<TokenId> prompt = {3, 3};
    CHECK(Sampler(options, prompt, 0).sample(logits)->token == 4);
  }
  SECTION("bias") {
    options.logit_bias = {{7, 100.0F}, {3, -100.0F}, {99999, 5.0F}};
    const auto sampled = Sampler(options, {}, 0).sample(logits);
    CHECK(sampled->token == 7);
    CHECK(sampled->logprob < -2.0F);  // the model's own, before the bias
  }
}

TEST_CASE("a seed fixes the draws, whatever else happens") {
  SamplingOptions options;
  options.seed = 42;
  Sampler first(options, {}, 0);
  Sampler second(options, {}, 0);
  std::vector<TokenId> a;
  std::vector<TokenId> b;
  for (unsigned i = 0; i < 50; ++i) {
    a.push_back(first.sample(random_logits(100, i))->token);
  }
  for (unsigned i = 0; i < 50; ++i) {
    b.push_back(second.sample(random_logits(100, i))->token);
  }
  CHECK(a == b);
  options.seed = 43;
  Sampler other(options, {}, 0);
  std::vector<TokenId> c;
  for (unsigned i = 0; i < 50; ++i) {
    c.push_back(other.sample(random_logits(100, i))->token);
  }
  CHECK(a != c);
}

TEST_CASE("logits that are not numbers are an error, not a token") {
  const float nan = std::nanf("");
  CHECK_FALSE(Sampler({}, {}, 0).sample(std::vector<float>(10, nan)).ok());
  std::vector<float> one(10, 0.0F);
  one[4] = nan;
  CHECK_FALSE(Sampler({}, {}, 0).sample(one).ok());
}

TEST_CASE("of a mask's tokens alone one is taken, however unlikely, in every way to sample") {
  const std::vector<float> logits = random_logits(1000, 5);
  std::vector<std::uint32_t> mask(32);
  const auto allow = [&mask](TokenId id) { mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32); };
  const auto worst = static_cast<TokenId>(std::min_element(logits.begin(), logits.end()) - logits.begin());
  allow(worst);
  for (const float temperature : {0.0F, 1.0F}) {
    for (const std::int32_t top_k : {0, 5}) {
      for (const float top_p : {1.0F, 0.5F}) {
        SamplingOptions options;
        options.temperature = temperature;
        options.top_k = top_k;
        options.top_p = top_p;
        options.min_p = top_k > 0 ? 0.1F : 0.0F;
        options.presence_penalty = top_p < 1 ? 1.0F : 0.0F;
        options.logit_bias[(worst + 1) % 1000] = 100;
        options.seed = 1;
        const auto sampled = Sampler(options, {}, 0).sample(logits, mask);
        REQUIRE(sampled.ok());
        CHECK(sampled->token == worst);
        // Of all tokens, not of those allowed.
        CHECK(sampled->logprob == Approx(std::log(softmax(logits, 1)[static_cast<std::size_t>(worst)])).margin(1e-3));
      }
    }
  }
  // Among several their own proportions hold.
  allow((worst + 40) % 1000);
  SamplingOptions options;
  std::map<TokenId, int> drawn;
  for (int i = 0; i < 4000; ++i) {
    options.seed = static_cast<std::uint64_t>(i);
    ++drawn[Sampler(options, {}, 0).sample(logits, mask)->token];
  }
  REQUIRE(drawn.size() <= 2);
  const auto other = static_cast<std::size_t>((worst + 40) % 1000);
  const double odds = std::exp(static_cast<double>(logits[other] - logits[static_cast<std::size_t>(worst)]));
  CHECK(drawn[static_cast<TokenId>(other)] / 4000.0 == Approx(odds / (1 + odds)).margin(0.03));
}

TEST_CASE("a mask that leaves nothing is an error, not a token") {
  const std::vector<float> logits = random_logits(100, 5);
  const std::vector<std::uint32_t> none(4);
  for (const float temperature : {0.0F, 1.0F}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.seed = 1;
    CHECK_FALSE(Sampler(options, {}, 0).sample(logits, none).ok());
  }
}

}  // namespace
}  // namespace promptcached::engine
