#include "tests/unit/model/model_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "core/checkpoint/safetensors.h"
#include "tests/catch.h"

namespace promptcached::model {
namespace {

using namespace checkpoint;  // NOLINT(google-build-using-namespace)

template <typename Target, typename Stored>
std::vector<Target> convert(const StoredTensor& tensor) {
  std::vector<Stored> values(tensor.bytes.size() / sizeof(Stored));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(Stored));
  return {values.begin(), values.end()};
}

}  // namespace

std::filesystem::path oracle_path(const std::string& name) {
  return std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "tests" / "data" / "oracle" / name;
}

std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(oracle_path(""))) {
    if (std::filesystem::exists(entry.path() / "oracle.safetensors")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

OracleCase read_oracle(const std::filesystem::path& file, const std::string& name) {
  const StoredTensors stored = read_safetensors_file(file);
  const auto find = [&](const char* field) { return stored.find(name + "." + field); };
  OracleCase result;
  result.tokens = convert<std::int32_t, std::int64_t>(*find("token_ids"));
  result.positions = convert<std::int32_t, std::int64_t>(*find("position_ids"));
  result.mask = convert<std::uint8_t, std::uint8_t>(*find("mask"));
  result.rows = convert<std::int32_t, std::int64_t>(*find("rows"));
  const auto read_floats = [&](const char* field, std::vector<float>* target) {
    if (const StoredTensor* tensor = find(field)) {
      *target = convert<float, float>(*tensor);
    }
  };
  read_floats("logits", &result.logits);
  read_floats("top_logits", &result.top_logits);
  read_floats("last_logits", &result.last_logits);
  read_floats("greedy_gaps", &result.greedy_gaps);
  if (const StoredTensor* tensor = find("top_ids")) {
    result.top_ids = convert<std::int64_t, std::int64_t>(*tensor);
  }
  if (const StoredTensor* tensor = find("greedy_ids")) {
    result.greedy_ids = convert<std::int64_t, std::int64_t>(*tensor);
  }
  return result;
}

std::filesystem::path default_model() {
  const char* given = std::getenv("PROMPTCACHED_TEST_MODEL");
  std::filesystem::path path =
      given != nullptr ? given : std::filesystem::path(PROMPTCACHED_SOURCE_DIR) / "models" / "smollm2-135m-instruct";
  if (std::filesystem::exists(path / "config.json")) {
    return path;
  }
  const char* without = std::getenv("PROMPTCACHED_TEST_NO_MODEL");
  if (without != nullptr && std::string(without) == "1") {
    WARN("SKIPPED: PROMPTCACHED_TEST_NO_MODEL is set and there is no " << path.string());
    return {};
  }
  FAIL("the default model is not at " << path.string() << "; 'make model' converts it");
  return {};
}

const std::vector<std::string>& devices() {
  static const std::vector<std::string> kUsable = [] {
    std::vector<std::string> names = {"cpu"};
    try {
      load(oracle_path("tiny-gqa"), "fp32", "cuda");
      names.emplace_back("cuda");
    } catch (const std::runtime_error& error) {
      WARN("SKIPPED: no CUDA device (" << error.what() << ")");
    }
    return names;
  }();
  return kUsable;
}

std::unique_ptr<CausalLm> load(const std::filesystem::path& directory, const std::string& kv_dtype,
                               const std::string& device, const std::string& weights) {
  LoadOptions options;
  options.path = directory;
  options.kv_dtype = kv_dtype;
  options.device = device;
  options.weights = weights;
  return load_model(options);
}

void copy_model(const std::string& name, const std::filesystem::path& target,
                const std::function<void(nlohmann::json&)>& edit) {
  for (const auto& entry : std::filesystem::directory_iterator(oracle_path(name))) {
    std::filesystem::copy_file(entry.path(), target / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::permissions(target / entry.path().filename(), std::filesystem::perms::owner_all);
  }
  if (edit) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(target / "config.json"));
    edit(config);
    std::ofstream(target / "config.json") << config.dump(2);
  }
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

Block::Block(CausalLm& model, std::int32_t tokens)
    : model_(model),
      bytes_(std::size_t{2} * model.info().layers * model.info().kv_heads * model.info().head_dim *
             model.info().kv_element_bytes * tokens),
      array_{model.allocate_kv(bytes_), tokens},
      positions_(static_cast<std::size_t>(tokens), 0) {
  REQUIRE(array_.data != nullptr);
  model_.poison_kv(array_.data, bytes_);
}

Block::~Block() { model_.deallocate_kv(array_.data, bytes_); }

void Block::place(std::int32_t offset, std::span<const std::int32_t> positions) const {
  const auto room = static_cast<std::ptrdiff_t>(positions_.size()) - offset;
  std::copy_n(positions.begin(), std::min<std::ptrdiff_t>(room, std::ssize(positions)), positions_.begin() + offset);
}

std::vector<PositionRun> Block::runs(std::int32_t offset, std::int32_t count) const {
  std::vector<PositionRun> runs;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t position = positions_.at(static_cast<std::size_t>(offset + i));
    if (runs.empty() || position != runs.back().position + (i - runs.back().offset)) {
      runs.push_back({i, position});
    }
  }
  return runs;
}

RowRange BatchBuilder::group(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& positions) {
  const RowRange rows{batch_.rows(), batch_.rows() + static_cast<std::int32_t>(tokens.size())};
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
  batch_.positions.insert(batch_.positions.end(), positions.begin(), positions.end());
  batch_.causal_groups.push_back(rows);
  return rows;
}

void BatchBuilder::read(const Block& block, std::int32_t offset, std::int32_t count, std::vector<RowRange> rows) {
  batch_.reads.push_back({block.array(), offset, count, std::move(rows), block.runs(offset, count)});
}

void BatchBuilder::write(const Block& block, std::int32_t offset, RowRange rows) {
  batch_.writes.push_back({block.array(), offset, rows});
  block.place(
      offset,
      std::span(batch_.positions).subspan(static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.size())));
}

void BatchBuilder::want(RowRange rows) {
  for (std::int32_t row = rows.begin; row < rows.end; ++row) {
    batch_.logit_rows.push_back(row);
  }
}

std::vector<float> run(CausalLm& model, const ForwardBatch& batch) {
  const Logits logits = model.forward(batch);
  return {logits.data, logits.data + static_cast<std::ptrdiff_t>(logits.rows) * logits.vocab_size};
}

std::vector<float> run_whole(CausalLm& model, const std::vector<std::int32_t>& tokens, std::int32_t first) {
  BatchBuilder builder;
  builder.want(builder.group(tokens, count_from(first, tokens.size())));
  return run(model, builder.batch());
}

std::vector<std::int32_t> count_from(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<std::int32_t> random_tokens(std::size_t count, std::int32_t vocab, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> token(3, vocab - 1);
  std::vector<std::int32_t> tokens(count);
  std::generate(tokens.begin(), tokens.end(), [&] { return token(generator); });
  return tokens;
}

std::vector<std::int32_t> slice(const std::vector<std::int32_t>& values, std::int32_t begin, std::int32_t end) {
  return {values.begin() + begin, values.begin() + end};
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  double scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return scale == 0 ? largest : largest / scale;
}

std::vector<float> tail(const std::vector<float>& values, std::size_t count) {
  REQUIRE(values.size() >= count);
  return {values.end() - static_cast<std::ptrdiff_t>(count), values.end()};
}

}  // namespace promptcached::model
