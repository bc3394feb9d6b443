#include "core/base/metrics.h"

#include <atomic>
#include <cmath>
#include <ctime>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/base/process_stats.h"
#include "tests/catch.h"
#include "tests/unit/base/exposition.h"

namespace promptcached {
namespace {

using Strings = std::vector<std::string>;
using StringSet = std::set<std::string>;

Metrics::Options options() {
  return {.build_info = {.version = "1.2.3",
                         .model = "a \"model\"\nwith \\ all",
                         .device = "cpu",
                         .weights = "fp32",
                         .kv_dtype = "fp32"},
          .routes = {"generate", "schemas"}};
}

TEST_CASE("every metric has its documented name and kind from the start", "[base]") {
  Metrics metrics(options());
  const Exposition exposed = parse_exposition(metrics.expose());
  const std::map<std::string, std::string> expected = {
      {"promptcached_time_to_first_token_seconds", "histogram"},
      {"promptcached_inter_token_latency_seconds", "histogram"},
      {"promptcached_request_duration_seconds", "histogram"},
      {"promptcached_request_queue_seconds", "histogram"},
      {"promptcached_stage_seconds", "histogram"},
      {"promptcached_module_lookups_total", "counter"},
      {"promptcached_module_hits_total", "counter"},
      {"promptcached_prefix_lookup_tokens_total", "counter"},
      {"promptcached_prefix_hit_tokens_total", "counter"},
      {"promptcached_prefix_cache_bytes", "gauge"},
      {"promptcached_prefix_cache_entries", "gauge"},
      {"promptcached_prompt_tokens_total", "counter"},
      {"promptcached_generated_tokens_total", "counter"},
      {"promptcached_requests_total", "counter"},
      {"promptcached_requests_running", "gauge"},
      {"promptcached_requests_waiting", "gauge"},
      {"promptcached_module_encode_seconds", "histogram"},
      {"promptcached_module_encodes_total", "counter"},
      {"promptcached_cache_bytes", "gauge"},
      {"promptcached_cache_capacity_bytes", "gauge"},
      {"promptcached_cache_pinned_bytes", "gauge"},
      {"promptcached_cache_entries", "gauge"},
      {"promptcached_cache_evictions_total", "counter"},
      {"promptcached_cache_transfer_bytes_total", "counter"},
      {"promptcached_cache_transfer_seconds", "histogram"},
      {"promptcached_cache_corrupt_total", "counter"},
      {"promptcached_tier_errors_total", "counter"},
      {"promptcached_tier_bypasses_total", "counter"},
      {"promptcached_ttft_saved_seconds_total", "counter"},
      {"promptcached_schemas", "gauge"},
      {"promptcached_batch_size", "histogram"},
      {"promptcached_batch_tokens", "histogram"},
      {"promptcached_kv_blocks_free", "gauge"},
      {"promptcached_build_info", "gauge"},
      {"process_cpu_seconds_total", "counter"},
      {"process_start_time_seconds", "gauge"},
      {"process_resident_memory_bytes", "gauge"},
      {"process_virtual_memory_bytes", "gauge"},
      {"process_open_fds", "gauge"},
      {"process_max_fds", "gauge"},
      {"process_threads", "gauge"},
  };
  CHECK(exposed.types == expected);
}

TEST_CASE("label values are closed sets, all there before anything happens", "[base]") {
  Metrics metrics(options());
  const Exposition exposed = parse_exposition(metrics.expose());
  CHECK(exposed.values_of("promptcached_time_to_first_token_seconds_count", "cache") ==
        StringSet{"device", "host", "disk", "remote", "partial", "miss", "none"});
  CHECK(exposed.values_of("promptcached_stage_seconds_count", "stage") ==
        StringSet{"parse", "queue", "load", "prefill", "decode", "write"});
  CHECK(exposed.values_of("promptcached_prompt_tokens_total", "source") ==
        StringSet{"device", "host", "disk", "remote", "computed"});
  CHECK(exposed.values_of("promptcached_module_hits_total", "tier") == StringSet{"device", "host", "disk", "remote"});
  CHECK(exposed.values_of("promptcached_cache_evictions_total", "reason") ==
        StringSet{"capacity", "ttl", "requested", "replaced"});
  CHECK(exposed.values_of("promptcached_requests_total", "route") == StringSet{"generate", "schemas", "other"});
  CHECK(exposed.at("promptcached_requests_total", {{"route", "generate"}, {"outcome", "ok"}}) == 0);
  CHECK(exposed.at("promptcached_build_info", {{"version", "1.2.3"},
                                               {"model", "a \"model\"\nwith \\ all"},
                                               {"device", "cpu"},
                                               {"weights", "fp32"},
                                               {"kv_dtype", "fp32"}}) == 1);
}

TEST_CASE("buckets are those that are documented", "[base]") {
  Metrics metrics(options());
  const Exposition exposed = parse_exposition(metrics.expose());
  CHECK(exposed.bucket_bounds.at("promptcached_time_to_first_token_seconds") ==
        Strings{"0.001", "0.0025", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.15", "0.25",
                "0.5",   "0.75",   "1",     "2.5",  "5",    "10",   "20",   "40",   "80",  "+Inf"});
  for (const char* name : {"inter_token_latency_seconds", "request_duration_seconds", "request_queue_seconds"}) {
    INFO(name);
    const Strings& bounds = exposed.bucket_bounds.at(std::string("promptcached_") + name);
    CHECK(bounds.front() == "0.001");
    CHECK(bounds.back() == "+Inf");
  }
  for (const auto& [family, bounds] : exposed.bucket_bounds) {
    INFO(family);
    for (std::size_t i = 1; i + 1 < bounds.size(); ++i) {
      CHECK(std::stod(bounds[i - 1]) < std::stod(bounds[i]));
    }
  }
}

TEST_CASE("an observation falls into its bucket and those above", "[base]") {
  Metrics metrics(options());
  metrics.time_to_first_token(CacheLabel::kDevice).observe(0.02);  // a bound belongs to its bucket
  metrics.time_to_first_token(CacheLabel::kDevice).observe(100);
  metrics.time_to_first_token(CacheLabel::kMiss).observe(-1e-9);  // rounding
  metrics.time_to_first_token(CacheLabel::kNone).observe(std::nan(""));
  const Exposition exposed = parse_exposition(metrics.expose());
  const auto bucket = [&](const char* cache, const char* le) {
    return exposed.at("promptcached_time_to_first_token_seconds_bucket", {{"cache", cache}, {"le", le}});
  };
  CHECK(bucket("device", "0.01") == 0);
  CHECK(bucket("device", "0.02") == 1);
  CHECK(bucket("device", "80") == 1);
  CHECK(bucket("device", "+Inf") == 2);
  CHECK(exposed.at("promptcached_time_to_first_token_seconds_sum", {{"cache", "device"}}) == Approx(100.02));
  CHECK(bucket("miss", "0.001") == 1);
  CHECK(exposed.at("promptcached_time_to_first_token_seconds_sum", {{"cache", "miss"}}) == 0);
  CHECK(exposed.at("promptcached_time_to_first_token_seconds_count", {{"cache", "none"}}) == 0);
  CHECK(exposed.at("promptcached_time_to_first_token_seconds_count", {{"cache", "partial"}}) == 0);
}

TEST_CASE("every method moves its own series and no other", "[base]") {
  Metrics metrics(options());
  const Exposition before = parse_exposition(metrics.expose());
  double amount = 1;
  std::map<std::pair<std::string, Exposition::Labels>, double> expected;
  const auto expect = [&](const char* name, const Exposition::Labels& labels = {}) {
    expected[{std::string("promptcached_") + name, labels}] = ++amount;
    return amount;
  };
  metrics.module_lookups().add(expect("module_lookups_total"));
  metrics.module_hits(TierLabel::kDevice).add(expect("module_hits_total", {{"tier", "device"}}));
  metrics.prompt_tokens(SourceLabel::kDevice).add(expect("prompt_tokens_total", {{"source", "device"}}));
  metrics.prompt_tokens(SourceLabel::kComputed).add(expect("prompt_tokens_total", {{"source", "computed"}}));
  metrics.generated_tokens().add(expect("generated_tokens_total"));
  metrics.ttft_saved_seconds().add(expect("ttft_saved_seconds_total"));
  metrics.module_encodes().add(expect("module_encodes_total"));
  metrics.requests_running().set(expect("requests_running"));
  metrics.requests_waiting().set(expect("requests_waiting"));
  metrics.cache_bytes(TierLabel::kDevice).set(expect("cache_bytes", {{"tier", "device"}}));
  metrics.cache_capacity_bytes(TierLabel::kDevice).set(expect("cache_capacity_bytes", {{"tier", "device"}}));
  metrics.cache_pinned_bytes(TierLabel::kDevice).set(expect("cache_pinned_bytes", {{"tier", "device"}}));
  metrics.cache_entries(TierLabel::kDevice).set(expect("cache_entries", {{"tier", "device"}}));
  const auto evictions = [&](EvictionLabel label, const char* reason) {
    metrics.cache_evictions(TierLabel::kDevice, label)
        .add(expect("cache_evictions_total", {{"tier", "device"}, {"reason", reason}}));
  };
  evictions(EvictionLabel::kCapacity, "capacity");
  evictions(EvictionLabel::kTtl, "ttl");
  evictions(EvictionLabel::kRequested, "requested");
  evictions(EvictionLabel::kReplaced, "replaced");
  metrics.kv_blocks_free().set(expect("kv_blocks_free"));
  metrics.schemas().set(expect("schemas"));
  const auto histogram = [&](Histogram series, const std::string& name, const Exposition::Labels& labels = {}) {
    series.observe(expect((name + "_sum").c_str(), labels));
  };
  histogram(metrics.inter_token_latency(), "inter_token_latency_seconds");
  histogram(metrics.request_duration(), "request_duration_seconds");
  histogram(metrics.request_queue(), "request_queue_seconds");
  histogram(metrics.module_encode(), "module_encode_seconds");
  histogram(metrics.batch_size(), "batch_size");
  histogram(metrics.batch_tokens(), "batch_tokens");
  histogram(metrics.time_to_first_token(CacheLabel::kPartial), "time_to_first_token_seconds", {{"cache", "partial"}});
  histogram(metrics.stage(StageLabel::kParse), "stage_seconds", {{"stage", "parse"}});
  histogram(metrics.stage(StageLabel::kQueue), "stage_seconds", {{"stage", "queue"}});
  histogram(metrics.stage(StageLabel::kLoad), "stage_seconds", {{"stage", "load"}});
  histogram(metrics.stage(StageLabel::kPrefill), "stage_seconds", {{"stage", "prefill"}});
  histogram(metrics.stage(StageLabel::kDecode), "stage_seconds", {{"stage", "decode"}});
  histogram(metrics.stage(StageLabel::kWrite), "stage_seconds", {{"stage", "write"}});

  const Exposition after = parse_exposition(metrics.expose());
  REQUIRE(after.samples.size() == before.samples.size());
  for (const auto& [key, value] : after.samples) {
    const bool histogram_count = key.second.count("le") > 0 || key.first.find("_count") != std::string::npos;
    if (key.first.rfind("process_", 0) != 0 && !histogram_count) {
      INFO(key.first);
      const auto found = expected.find(key);
      CHECK(value == Approx(found == expected.end() ? before.samples.at(key) : found->second));
    }
  }
}

TEST_CASE("counters never fall", "[base]") {
  Metrics metrics(options());
  const Counter counter = metrics.ttft_saved_seconds();
  counter.add(2.5);
  for (const double wrong : {-1.0, 0.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    counter.add(wrong);
  }
  CHECK(counter.value() == 2.5);
  const Gauge gauge = metrics.requests_running();
  gauge.add(3);
  gauge.add(-2);
  CHECK(gauge.value() == 1);
}

TEST_CASE("a request is counted by route and outcome, and no text of a client's gets in", "[base]") {
  Metrics metrics(options());
  metrics.count_request("generate", std::nullopt);
  metrics.count_request("generate", std::nullopt);
  metrics.count_request("generate", ErrorCode::kQueueFull);
  metrics.count_request("/no/such\"route\n", ErrorCode::kNotFound);
  metrics.count_request("", ErrorCode::kNotFound);
  const Exposition exposed = parse_exposition(metrics.expose());
  const auto requests = [&](const char* route, const char* outcome) {
    return exposed.at("promptcached_requests_total", {{"route", route}, {"outcome", outcome}});
  };
  CHECK(requests("generate", "ok") == 2);
  CHECK(requests("generate", "queue_full") == 1);
  CHECK(requests("other", "not_found") == 2);
  CHECK(exposed.values_of("promptcached_requests_total", "route") == StringSet{"generate", "schemas", "other"});
}

TEST_CASE("the collector runs at each exposition until it is cleared", "[base]") {
  Metrics metrics(options());
  int calls = 0;
  metrics.set_collector([&] { metrics.schemas().set(++calls); });
  CHECK(parse_exposition(metrics.expose()).at("promptcached_schemas") == 1);
  CHECK(parse_exposition(metrics.expose()).at("promptcached_schemas") == 2);
  metrics.set_collector({});
  metrics.expose();
  CHECK(calls == 2);
}

TEST_CASE("scrapes see hits that never exceed look-ups, and counters that never fall", "[base][threads]") {
  Metrics metrics(options());
  std::atomic<bool> stop{false};
  std::atomic<int> collected{0};
  metrics.set_collector([&] { ++collected; });
  std::vector<std::thread> requests;
  requests.reserve(2);
  for (int t = 0; t < 2; ++t) {
    requests.emplace_back([&] {
      while (!stop) {
        metrics.module_lookups().add();
        metrics.module_hits(TierLabel::kDevice).add();
        metrics.time_to_first_token(CacheLabel::kDevice).observe(0.01);
        metrics.count_request("generate", ErrorCode::kTimeout);
      }
    });
  }
  double last_hits = 0;
  double last_lookups = 0;
  for (int scrape = 0; scrape < 50; ++scrape) {
    const Exposition exposed = parse_exposition(metrics.expose());
    const double hits = exposed.at("promptcached_module_hits_total", {{"tier", "device"}});
    const double lookups = exposed.at("promptcached_module_lookups_total");
    CHECK(hits <= lookups);
    CHECK(hits >= last_hits);
    CHECK(lookups >= last_lookups);
    last_hits = hits;
    last_lookups = lookups;
  }
  stop = true;
  for (std::thread& request : requests) {
    request.join();
  }
  CHECK(collected == 50);
}

TEST_CASE("the process's numbers are those of this process", "[base]") {
  const ProcessStats before = read_process_stats();
  CHECK(before.resident_bytes > std::uint64_t{1} << 20);
  CHECK(before.virtual_bytes >= before.resident_bytes);
  CHECK(before.threads >= 1);
  CHECK(before.open_fds >= 3);
  CHECK(before.max_fds >= before.open_fds);
  const double age = static_cast<double>(std::time(nullptr)) - before.start_time_seconds;
  CHECK(age > -2);
  CHECK(age < 24 * 3600);

  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      std::this_thread::yield();
    }
  });
  const ProcessStats during = read_process_stats();
  CHECK(during.threads == before.threads + 1);
  const std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 20) {
  }
  stop = true;
  other.join();
  CHECK(read_process_stats().cpu_seconds > before.cpu_seconds);
}

}  // namespace
}  // namespace promptcached
