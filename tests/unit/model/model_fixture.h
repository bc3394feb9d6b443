// What the model's tests share: fixtures, temporary model directories, and small batches. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/model/causal_lm.h"
#include "tests/temporary_directory.h"

namespace promptcached::model {

// tests/data/oracle/<name>
std::filesystem::path oracle_path(const std::string& name);
// Every tiny model of the oracle, by directory name.
std::vector<std::string> tiny_models();

// One case of an oracle file. See tests/tools/make_oracle.py.
struct OracleCase {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::uint8_t> mask;     // [n, n]
  std::vector<std::int32_t> rows;     // whose logits are known
  std::vector<float> logits;          // [rows, vocab]; tiny models
  std::vector<std::int64_t> top_ids;  // [rows, 64]; default model
  std::vector<float> top_logits;      // the same
  std::vector<float> last_logits;     // [vocab]
  std::vector<std::int64_t> greedy_ids;
  std::vector<float> greedy_gaps;
};
OracleCase read_oracle(const std::filesystem::path& file, const std::string& name);

// The default model's directory: PROMPTCACHED_TEST_MODEL, or models/smollm2-135m-instruct. Fails the test when it is
// not there, unless PROMPTCACHED_TEST_NO_MODEL=1, which skips by an empty path.
std::filesystem::path default_model();

// "cpu", and "cuda" where it works; says so visibly where it does not.
const std::vector<std::string>& devices();

std::unique_ptr<CausalLm> load(const std::filesystem::path& directory, const std::string& kv_dtype = "fp32",
                               const std::string& device = "cpu", const std::string& weights = "fp32");

// Copies a tiny model to `target`, with its config.json changed by `edit`.
void copy_model(const std::string& name, const std::filesystem::path& target,
                const std::function<void(nlohmann::json&)>& edit = {});

// The message of the std::exception that `action` throws; fails the test when it throws none.
std::string message_of(const std::function<void()>& action);

// KV of a number of tokens, allocated by the model and poisoned, so that reading what nobody wrote shows.
class Block final {
 public:
  Block(CausalLm& model, std::int32_t tokens);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  const KvArray& array() const { return array_; }
  std::int32_t tokens() const { return array_.tokens; }
  std::size_t bytes() const { return bytes_; }
  // Where its tokens stand, as those that wrote them said.
  void place(std::int32_t offset, std::span<const std::int32_t> positions) const;
  std::vector<PositionRun> runs(std::int32_t offset, std::int32_t count) const;

 private:
  CausalLm& model_;
  std::size_t bytes_;
  KvArray array_;
  mutable std::vector<std::int32_t> positions_;  // [tokens]
};

// Builds a batch one causal group at a time.
class BatchBuilder final {
 public:
  // The rows of the group just added.
  RowRange group(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& positions);
  void read(const Block& block, std::int32_t offset, std::int32_t count, std::vector<RowRange> rows);
  void read(const Block& block, RowRange rows) { read(block, 0, block.tokens(), {rows}); }
  void write(const Block& block, std::int32_t offset, RowRange rows);
  void want(RowRange rows);  // logits of all of them
  const ForwardBatch& batch() const { return batch_; }

 private:
  ForwardBatch batch_;
};

// Logits of a batch, copied.
std::vector<float> run(CausalLm& model, const ForwardBatch& batch);

// All rows of one sequence at once, without KV: the reference within the model. Positions count from `first`.
std::vector<float> run_whole(CausalLm& model, const std::vector<std::int32_t>& tokens, std::int32_t first = 0);

std::vector<std::int32_t> count_from(std::int32_t first, std::size_t count);
std::vector<std::int32_t> random_tokens(std::size_t count, std::int32_t vocab, unsigned seed);
std::vector<std::int32_t> slice(const std::vector<std::int32_t>& values, std::int32_t begin, std::int32_t end);

// Largest |a - b| over the largest |b|; NaN counts as infinity. Fails the test when sizes differ.
double difference(const std::vector<float>& a, const std::vector<float>& b);
// The values from `begin` on.
std::vector<float> tail(const std::vector<float>& values, std::size_t count);

}  // namespace promptcached::model
