// FakeLm: a CausalLm whose answers tell exactly what each row saw.
//
// The KV of a token is its id, its position and a digest of everything it attended to, and the next token is that
// digest modulo the vocabulary. Sums of mixed values do not depend on the order in which KV is read, so an answer is
// the same for every way of batching, chunking and preempting, and differs as soon as one token too many, too few, or
// of the wrong content was visible.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/model/causal_lm.h"

namespace promptcached::fakes {

class FakeLm final : public model::CausalLm {
 public:
  static constexpr std::int32_t kHeadDim = 4;  // token, position, low and high half of the digest

  explicit FakeLm(std::int32_t vocab_size, std::vector<std::int32_t> end_tokens = {}) {
    info_.architecture = "FakeForCausalLM";
    info_.fingerprint = "fake";
    info_.layers = 1;
    info_.kv_heads = 1;
    info_.head_dim = kHeadDim;
    info_.vocab_size = vocab_size;
    info_.max_positions = 1 << 20;
    info_.weights_dtype = "fp32";
    info_.kv_dtype = "fp32";
    info_.kv_element_bytes = sizeof(float);
    info_.device = "cpu";
    info_.end_tokens = std::move(end_tokens);
  }

  const model::ModelInfo& info() const override { return info_; }

  model::Logits forward(const model::ForwardBatch& batch) override {
    if (on_forward) {
      on_forward(batch);
    }
    ++steps;
    rows += batch.rows();
    // 48-bit digests fit two floats exactly.
    std::vector<std::uint64_t> seen(static_cast<std::size_t>(batch.rows()));
    for (const model::KvRead& read : batch.reads) {
      kv_reads += read.count;
      for (std::int32_t t = read.offset; t < read.offset + read.count; ++t) {
        const float* k = element(read.kv, t);
        const std::uint64_t value = value_of(k);
        for (const model::RowRange& range : read.rows) {
          for (std::int32_t row = range.begin; row < range.end; ++row) {
            if (k[1] >= static_cast<float>(batch.positions[static_cast<std::size_t>(row)])) {
              throw std::runtime_error("a row was shown a token at its own or a later position");
            }
            seen[static_cast<std::size_t>(row)] += value;
          }
        }
      }
    }
    for (const model::RowRange& group : batch.causal_groups) {
      std::uint64_t earlier = 0;
      for (std::int32_t row = group.begin; row < group.end; ++row) {
        const std::size_t i = static_cast<std::size_t>(row);
        seen[i] = digest(batch.tokens[i], batch.positions[i], seen[i] + earlier);
        earlier += mix(seen[i]);
      }
    }
    for (const model::KvWrite& write : batch.writes) {
      for (std::int32_t row = write.rows.begin; row < write.rows.end; ++row) {
        const std::size_t i = static_cast<std::size_t>(row);
        float* k = element(write.kv, write.offset + row - write.rows.begin);
        k[0] = static_cast<float>(batch.tokens[i]);
        k[1] = static_cast<float>(batch.positions[i]);
        k[2] = static_cast<float>(seen[i] & 0xFFFFFF);
        k[3] = static_cast<float>(seen[i] >> 24);
      }
    }
    logits_.assign(batch.logit_rows.size() * static_cast<std::size_t>(info_.vocab_size), 0.0F);
    for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const std::uint64_t value = seen[static_cast<std::size_t>(batch.logit_rows[i])];
      logits_[i * static_cast<std::size_t>(info_.vocab_size) + next_token(value)] = 50.0F;
    }
    return {logits_.data(), static_cast<std::int32_t>(batch.logit_rows.size()), info_.vocab_size};
  }

  std::byte* allocate_kv(std::size_t bytes) override {
    return static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  }
  void deallocate_kv(std::byte* data, std::size_t) override { std::free(data); }
  void poison_kv(std::byte* data, std::size_t bytes) override { std::memset(data, 0xFF, bytes); }
  std::size_t free_memory_bytes() const override { return std::size_t{1} << 20; }

  // The same arithmetic for reference computations in tests.
  static std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15ULL;
    x ^= x >> 29;
    return x;
  }
  static std::uint64_t digest(std::int32_t token, std::int32_t position, std::uint64_t seen) {
    return mix(mix(static_cast<std::uint64_t>(token) * 1000003 + static_cast<std::uint64_t>(position)) + seen) &
           0xFFFFFFFFFFFF;
  }
  std::size_t next_token(std::uint64_t value) const {
    return static_cast<std::size_t>(mix(value) % static_cast<std::uint64_t>(info_.vocab_size));
  }

  std::function<void(const model::ForwardBatch&)> on_forward;  // may throw, as a device may
  std::atomic<std::int64_t> steps{0};
  std::atomic<std::int64_t> rows{0};
  std::atomic<std::int64_t> kv_reads{0};  // tokens of KV read, each once per batch however many rows see it

 private:
  static float* element(const model::KvArray& kv, std::int32_t token) {
    return reinterpret_cast<float*>(kv.data) + static_cast<std::ptrdiff_t>(token) * kHeadDim;
  }
  static std::uint64_t value_of(const float* k) {
    if (std::isnan(k[0])) {
      throw std::runtime_error("a row was shown freed KV");
    }
    const std::uint64_t digest = static_cast<std::uint64_t>(k[2]) | (static_cast<std::uint64_t>(k[3]) << 24);
    return mix(digest);
  }

  model::ModelInfo info_;
  std::vector<float> logits_;
};

}  // namespace promptcached::fakes
