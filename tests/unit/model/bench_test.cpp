// Timings, not tests: `test_model "[.bench]"` prints them for the default model.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

// Median milliseconds of `runs` runs after one that warms up.
double median_ms(int runs, const std::function<void()>& action) {
  action();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void report(const std::string& what, double ms, std::size_t rows) {
  std::cout << what << ": " << ms << " ms, " << static_cast<int>(1000.0 * static_cast<double>(rows) / ms) << " tokens/s"
            << std::endl;
}

void time_prefill(CausalLm& model, std::size_t tokens, int runs) {
  BatchBuilder builder;
  const RowRange rows = builder.group(random_tokens(tokens, model.info().vocab_size, 1), count_from(0, tokens));
  builder.want({rows.end - 1, rows.end});
  report("prefill of " + std::to_string(tokens), median_ms(runs, [&] { model.forward(builder.batch()); }), tokens);
}

// `sequences` of `rows` new rows each over the same `cached` tokens in `segments` segments.
void time_reuse(CausalLm& model, std::int32_t cached, std::int32_t segments, std::int32_t rows,
                std::int32_t sequences) {
  std::vector<std::unique_ptr<Block>> blocks;
  BatchBuilder builder;
  std::vector<RowRange> all;
  for (std::int32_t i = 0; i < sequences; ++i) {
    all.push_back(builder.group(random_tokens(static_cast<std::size_t>(rows), model.info().vocab_size, 2),
                                count_from(cached, static_cast<std::size_t>(rows))));
    builder.want({all.back().end - 1, all.back().end});
  }
  for (std::int32_t i = 0; i < segments; ++i) {
    const std::int32_t tokens = cached * (i + 1) / segments - cached * i / segments;
    blocks.push_back(std::make_unique<Block>(model, tokens));
    BatchBuilder fill;
    fill.write(*blocks.back(), 0,
               fill.group(random_tokens(static_cast<std::size_t>(tokens), 1000, 3),
                          count_from(cached * i / segments, static_cast<std::size_t>(tokens))));
    model.forward(fill.batch());
    builder.read(*blocks.back(), 0, tokens, all);
  }
  report(std::to_string(sequences) + " x " + std::to_string(rows) + " new over " + std::to_string(cached) + " in " +
             std::to_string(segments) + " segments, KV " + model.info().kv_dtype,
         median_ms(9, [&] { model.forward(builder.batch()); }), static_cast<std::size_t>(rows * sequences));
}

}  // namespace

TEST_CASE("Timings of the default model", "[.bench]") {
  const std::filesystem::path directory = default_model();
  if (directory.empty()) {
    return;
  }
  for (const std::string kv_dtype : {"fp32", "fp16"}) {
    LoadOptions options;
    options.directory = directory;
    options.kv_dtype = kv_dtype;
    options.log = [](const std::string& line) { std::cout << line << std::endl; };
    const auto model = load_model(options);
    for (const std::int32_t segments : {1, 8, 32}) {
      time_reuse(*model, 3000, segments, 24, 1);
    }
    time_reuse(*model, 3500, 1, 1, 1);
    time_reuse(*model, 3500, 8, 1, 1);
    time_reuse(*model, 3500, 1, 1, 8);
    time_reuse(*model, 16, 1, 1, 1);
    if (kv_dtype == "fp32") {
      time_prefill(*model, 512, 5);
      time_prefill(*model, 3000, 3);
    }
  }
}

}  // namespace promptcached::model
