// What the parity tests share: the engine over the real default model, with its logits recorded, and the direct pass of
// the same plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "tests/catch.h"
#include "tests/parity/direct_pass.h"

namespace promptcached::parity {

// Top-2 gaps below this are near ties: matrix products round differently by shape, so either token is right.
constexpr float kNearTie = 0.15F;

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;  // [token][vocab], of an engine that served this request alone
  engine::Usage usage;
  std::vector<engine::CachePartInfo> cache;
};

class ParityFixture {
 public:
  struct Options {
    std::filesystem::path model;                 // empty: the default one, or PROMPTCACHED_TEST_MODEL
    std::shared_ptr<const Tokenizer> tokenizer;  // null: the model's own
    std::string weights = "fp32";
    std::string kv_dtype = "fp32";
    std::size_t kv_bytes = std::size_t{1} << 30;
    std::int32_t max_batch_tokens = 512;
    engine::TierOptions tiers = {.host_bytes = 0};
  };
  ParityFixture() : ParityFixture(Options()) {}
  explicit ParityFixture(const Options& options);
  ~ParityFixture();

  // True when the device asked for by PROMPTCACHED_TEST_DEVICE is not here; says so.
  static bool skipped();
  static bool computes_on_gpu();

  void add_schema(const std::string& source);
  engine::GenerateRequest request(const std::string& prompt, std::int32_t max_tokens);
  Outcome run(engine::GenerateRequest made);
  // All at once, without logits.
  std::vector<std::vector<TokenId>> run_together(std::vector<engine::GenerateRequest> made);

  // Logits [generated.size()][vocab] of the direct pass over the plan's tokens followed by `generated`: row i is what
  // token i was picked from.
  std::vector<std::vector<float>> direct(const engine::GenerateRequest& made, const std::vector<TokenId>& generated);

  engine::Engine& engine() { return *engine_; }

 private:
  class RecordingLm;
  Metrics metrics_;
  std::filesystem::path model_;
  DirectPass::Weights weights_;
  RecordingLm* recorder_ = nullptr;
  std::unique_ptr<engine::Engine> engine_;
};

float max_difference(const std::vector<float>& a, const std::vector<float>& b);
// Logit of the best token minus that of `other` (or of the second best, when `other` is the best).
float gap(const std::vector<float>& logits, TokenId other);
TokenId argmax(const std::vector<float>& logits);

}  // namespace promptcached::parity
