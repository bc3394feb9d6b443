// What rounding weights and KV costs the default model: next-token distributions against those in fp32.
#include <algorithm>
#include <span>
#include <vector>

#include "tests/catch.h"
#include "tests/divergence.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

constexpr double kMostDivergence = 0.004;
constexpr double kLeastAgreement = 0.97;

struct Quality {
  double divergence = 0;  // mean over tokens of KL(fp32 || rounded), in nats
  double agreement = 0;   // share of tokens whose best next token is the same
  std::size_t tokens = 0;
};

void add(const std::vector<float>& exact, const std::vector<float>& rounded, std::int32_t vocab, Quality* quality) {
  REQUIRE(exact.size() == rounded.size());
  for (std::size_t begin = 0; begin < exact.size(); begin += static_cast<std::size_t>(vocab)) {
    const std::span p(exact.data() + begin, static_cast<std::size_t>(vocab));
    const std::span q(rounded.data() + begin, static_cast<std::size_t>(vocab));
    quality->divergence += divergence(p, q);
    quality->agreement +=
        std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin() ? 1 : 0;
    ++quality->tokens;
  }
}

}  // namespace

TEST_CASE("8-bit weights and 16-bit KV keep the next token's distribution", "[model][quality][default-model]") {
  const std::filesystem::path directory = default_model();
  if (directory.empty()) {
    return;
  }
  const auto exact = load(directory, "fp32", "cpu", "fp32");
  const auto rounded = load(directory, "fp16", "cpu", "int8");
  Quality quality;
  for (const std::string kind : {"short", "medium", "chat", "long"}) {
    const OracleCase oracle = read_oracle(oracle_path("smollm2-135m-instruct.safetensors"), kind);
    const std::vector<std::int32_t> tokens =
        slice(oracle.tokens, 0, static_cast<std::int32_t>(std::min<std::size_t>(oracle.tokens.size(), 400)));
    add(run_whole(*exact, tokens), run_whole(*rounded, tokens), exact->info().vocab_size, &quality);
  }
  quality.divergence /= static_cast<double>(quality.tokens);
  quality.agreement /= static_cast<double>(quality.tokens);
  WARN("int8 weights, fp16 KV, " << quality.tokens << " tokens: KL " << quality.divergence << ", top-1 agreement "
                                 << 100 * quality.agreement << " %");
  CHECK(quality.tokens > 300);
  CHECK(quality.divergence <= kMostDivergence);
  CHECK(quality.agreement >= kLeastAgreement);
}

}  // namespace promptcached::model
