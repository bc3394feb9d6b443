// Timings, not tests: `test_model "[.bench]"` prints them for the default model; [reuse], [decode] and [prefill]
// choose.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

struct Timing {
  double wall_ms = 0;
  double cpu_ms = 0;  // of all threads, waiting in loops included: what to look at when the machine is busy
};

double now_ms(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Medians of `runs` runs after one that warms up.
Timing time_of(int runs, const std::function<void()>& action) {
  action();
  std::vector<double> wall;
  std::vector<double> cpu;
  for (int i = 0; i < runs; ++i) {
    const double wall_begin = now_ms(CLOCK_MONOTONIC);
    const double cpu_begin = now_ms(CLOCK_PROCESS_CPUTIME_ID);
    action();
    wall.push_back(now_ms(CLOCK_MONOTONIC) - wall_begin);
    cpu.push_back(now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin);
  }
  return {median(wall), median(cpu)};
}

void report(const std::string& what, const Timing& timing, std::size_t rows) {
  std::cout << what << ": " << timing.wall_ms << " ms (CPU " << timing.cpu_ms << "), "
            << static_cast<int>(1000.0 * static_cast<double>(rows) / timing.wall_ms) << " tokens/s" << std::endl;
}

std::unique_ptr<CausalLm> load_for_timing(const std::string& kv_dtype) {
  const std::filesystem::path directory = default_model();
  if (directory.empty()) {
    return nullptr;
  }
  LoadOptions options;
  options.path = directory;
  options.kv_dtype = kv_dtype;
  const char* threads = std::getenv("PROMPTCACHED_BENCH_THREADS");
  options.threads = threads == nullptr ? 0 : std::stoi(threads);
  options.log = [](const std::string& line) { std::cout << line << std::endl; };
  return load_model(options);
}

void time_prefill(CausalLm& model, std::size_t tokens, int runs) {
  BatchBuilder builder;
  const RowRange rows = builder.group(random_tokens(tokens, model.info().vocab_size, 1), count_from(0, tokens));
  builder.want({rows.end - 1, rows.end});
  report("prefill of " + std::to_string(tokens), time_of(runs, [&] { model.forward(builder.batch()); }), tokens);
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
         time_of(9, [&] { model.forward(builder.batch()); }),
         static_cast<std::size_t>(rows) * static_cast<std::size_t>(sequences));
}

}  // namespace

TEST_CASE("Time of reuse", "[.bench][reuse]") {
  for (const std::string kv_dtype : {"fp32", "fp16"}) {
    if (const auto model = load_for_timing(kv_dtype)) {
      for (const std::int32_t segments : {1, 8, 32}) {
        time_reuse(*model, 3000, segments, 24, 1);
      }
    }
  }
}

TEST_CASE("Time of decoding", "[.bench][decode]") {
  for (const std::string kv_dtype : {"fp32", "fp16"}) {
    if (const auto model = load_for_timing(kv_dtype)) {
      time_reuse(*model, 16, 1, 1, 1);
      time_reuse(*model, 3500, 1, 1, 1);
      time_reuse(*model, 3500, 8, 1, 1);
      for (const std::int32_t sequences : {2, 4, 8}) {
        time_reuse(*model, 16, 1, 1, sequences);
        time_reuse(*model, 3500, 1, 1, sequences);
      }
    }
  }
}

TEST_CASE("Time of prefill", "[.bench][prefill]") {
  if (const auto model = load_for_timing("fp32")) {
    time_prefill(*model, 512, 5);
    time_prefill(*model, 3000, 3);
  }
}

}  // namespace promptcached::model
