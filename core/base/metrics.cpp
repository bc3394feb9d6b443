#include "core/base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <utility>

#include "core/base/process_stats.h"

namespace promptcached {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kTtftBuckets = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15,
                              0.25,  0.5,    0.75,  1,    2.5,  5,    10,   20,   40,  80};
const Buckets kInterTokenBuckets = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075,
                                    0.1,   0.15,   0.25,  0.5,  0.75, 1,    2.5,  5,    10};
const Buckets kRequestBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                 2.5,   5,      10,    20,   40,    60,   120, 300,  600};
// Parsing a prompt takes microseconds, decoding an answer seconds.
const Buckets kStageBuckets = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                               0.05,    0.1,      0.25,    0.5,    1,       2.5,    5,     10,     20,    40,   80};
const Buckets kBatchSizeBuckets = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256};
const Buckets kBatchTokensBuckets = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

// Label values, in the order of their enum.
constexpr std::array kCacheLabels = {"device", "host", "disk", "remote", "partial", "miss", "none"};
constexpr std::array kStageLabels = {"parse", "queue", "load", "prefill", "decode", "write"};
constexpr std::array kTierLabels = {"device", "host", "disk", "remote"};
constexpr std::array kSourceLabels = {"device", "host", "disk", "remote", "computed"};
constexpr std::array kEvictionLabels = {"capacity", "ttl", "requested", "replaced"};
constexpr std::string_view kOtherRoute = "other";
constexpr std::string_view kOutcomeOk = "ok";

std::string prefixed(const char* name) { return std::string("promptcached_") + name; }

// One time series for each value of a label, there from the start: a rate over a series that appears with its first
// event misses that event.
template <typename T, std::size_t kValues, typename... Args>
std::array<T*, kValues> add_series(prometheus::Family<T>& family, const char* label,
                                   const std::array<const char*, kValues>& values, const Args&... args) {
  std::array<T*, kValues> series{};
  for (std::size_t i = 0; i < kValues; ++i) {
    series[i] = &family.Add({{label, values[i]}}, args...);
  }
  return series;
}

// The same for each pair of two labels' values.
template <typename T, std::size_t kFirst, std::size_t kSecond, typename... Args>
std::array<std::array<T*, kSecond>, kFirst> add_pairs(prometheus::Family<T>& family, const char* first_label,
                                                      const std::array<const char*, kFirst>& firsts,
                                                      const char* second_label,
                                                      const std::array<const char*, kSecond>& seconds,
                                                      const Args&... args) {
  std::array<std::array<T*, kSecond>, kFirst> series{};
  for (std::size_t i = 0; i < kFirst; ++i) {
    for (std::size_t j = 0; j < kSecond; ++j) {
      series[i][j] = &family.Add({{first_label, firsts[i]}, {second_label, seconds[j]}}, args...);
    }
  }
  return series;
}

template <typename T>
using TierPairs = std::array<std::array<T*, kTierLabels.size()>, kTierLabels.size()>;

template <typename T, std::size_t kValues, typename Label>
T& at(const std::array<T*, kValues>& series, Label label) {
  return *series.at(static_cast<std::size_t>(label));
}

prometheus::MetricFamily process_family(const char* name, const char* help, prometheus::MetricType type, double value) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  family.metric.emplace_back();
  family.metric.back().counter.value = value;
  family.metric.back().gauge.value = value;
  return family;
}

// process_* have their usual names, without our prefix: dashboards and alerts know them.
void append_process_families(std::vector<prometheus::MetricFamily>& families) {
  using prometheus::MetricType;
  const ProcessStats stats = read_process_stats();
  const auto add = [&families](const char* name, const char* help, MetricType type, auto value) {
    families.push_back(process_family(name, help, type, static_cast<double>(value)));
  };
  add("process_cpu_seconds_total", "User and system CPU time spent, in seconds", MetricType::Counter,
      stats.cpu_seconds);
  add("process_start_time_seconds", "Start time of the process, in Unix seconds", MetricType::Gauge,
      stats.start_time_seconds);
  add("process_resident_memory_bytes", "Resident memory", MetricType::Gauge, stats.resident_bytes);
  add("process_virtual_memory_bytes", "Virtual memory", MetricType::Gauge, stats.virtual_bytes);
  add("process_open_fds", "Open file descriptors", MetricType::Gauge, stats.open_fds);
  add("process_max_fds", "Limit of open file descriptors", MetricType::Gauge, stats.max_fds);
  add("process_threads", "Threads", MetricType::Gauge, stats.threads);
}

}  // namespace

std::string_view to_string(TierLabel tier) { return kTierLabels.at(static_cast<std::size_t>(tier)); }
std::string_view to_string(SourceLabel source) { return kSourceLabels.at(static_cast<std::size_t>(source)); }

void Counter::add(double amount) const {
  if (std::isfinite(amount) && amount > 0) {
    counter_->Increment(amount);
  }
}
double Counter::value() const { return counter_->Value(); }

void Gauge::set(double value) const { gauge_->Set(value); }
void Gauge::add(double amount) const {
  // Increment of a negative amount is ignored by some versions of prometheus-cpp.
  if (amount >= 0) {
    gauge_->Increment(amount);
  } else {
    gauge_->Decrement(-amount);
  }
}
double Gauge::value() const { return gauge_->Value(); }

void Histogram::observe(double value) const {
  if (!std::isnan(value)) {
    histogram_->Observe(std::max(value, 0.0));
  }
}

// The registry, and each of its metrics by name. Members are initialised in this order.
struct Metrics::Impl {
  prometheus::Registry registry;

  prometheus::Family<prometheus::Counter>& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(prefixed(name)).Help(help).Register(registry);
  }
  prometheus::Family<prometheus::Gauge>& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(prefixed(name)).Help(help).Register(registry);
  }
  prometheus::Family<prometheus::Histogram>& histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(prefixed(name)).Help(help).Register(registry);
  }

  // Requests
  std::array<prometheus::Histogram*, kCacheLabels.size()> time_to_first_token =
      add_series(histogram("time_to_first_token_seconds",
                           "From the request's arrival to the first text handed to the socket, queueing included"),
                 "cache", kCacheLabels, kTtftBuckets);
  prometheus::Histogram& inter_token_latency =
      histogram("inter_token_latency_seconds", "Time between two generated tokens of a request")
          .Add({}, kInterTokenBuckets);
  prometheus::Histogram& request_duration =
      histogram("request_duration_seconds", "From a request's arrival to its end").Add({}, kRequestBuckets);
  prometheus::Histogram& request_queue =
      histogram("request_queue_seconds", "From a request's arrival to its first step in the engine")
          .Add({}, kRequestBuckets);
  std::array<prometheus::Histogram*, kStageLabels.size()> stage =
      add_series(histogram("stage_seconds", "Time a request spent in a stage"), "stage", kStageLabels, kStageBuckets);
  prometheus::Gauge& requests_running = gauge("requests_running", "Requests the engine is computing now").Add({});
  prometheus::Gauge& requests_waiting = gauge("requests_waiting", "Requests waiting to be admitted").Add({});
  prometheus::Family<prometheus::Counter>& requests =
      counter("requests_total", "Finished requests by route and outcome (ok or the error's code)");

  // Reuse
  // A scrape reads counters in this order. Hits come before look-ups, and callers count the look-up first, so no scrape
  // sees more hits than look-ups.
  std::array<prometheus::Counter*, kTierLabels.size()> module_hits =
      add_series(counter("module_hits_total", "Modules that requests asked for and found"), "tier", kTierLabels);
  prometheus::Counter& module_lookups =
      counter("module_lookups_total", "Modules that requests asked for, once per request and module").Add({});
  prometheus::Counter& prefix_hit_tokens =
      counter("prefix_hit_tokens_total", "Prompt tokens outside modules whose KV another request had computed").Add({});
  prometheus::Counter& prefix_lookup_tokens =
      counter("prefix_lookup_tokens_total", "Prompt tokens outside modules, but for the last of each prompt").Add({});
  std::array<prometheus::Counter*, kSourceLabels.size()> prompt_tokens =
      add_series(counter("prompt_tokens_total", "Prompt tokens by where their KV came from"), "source", kSourceLabels);
  prometheus::Counter& generated_tokens = counter("generated_tokens_total", "Generated tokens").Add({});
  prometheus::Counter& ttft_saved_seconds =
      counter("ttft_saved_seconds_total", "Estimate: reused tokens times the measured prefill cost per token").Add({});
  prometheus::Counter& module_encodes = counter("module_encodes_total", "Modules encoded").Add({});
  prometheus::Histogram& module_encode =
      histogram("module_encode_seconds", "Time to encode a module").Add({}, kRequestBuckets);

  // Cache
  std::array<prometheus::Gauge*, kTierLabels.size()> cache_bytes =
      add_series(gauge("cache_bytes", "Bytes of modules"), "tier", kTierLabels);
  std::array<prometheus::Gauge*, kTierLabels.size()> cache_capacity_bytes =
      add_series(gauge("cache_capacity_bytes", "The budget of a tier"), "tier", kTierLabels);
  std::array<prometheus::Gauge*, kTierLabels.size()> cache_pinned_bytes =
      add_series(gauge("cache_pinned_bytes", "Bytes of modules that cannot be evicted now"), "tier", kTierLabels);
  std::array<prometheus::Gauge*, kTierLabels.size()> cache_entries =
      add_series(gauge("cache_entries", "Modules in a tier"), "tier", kTierLabels);
  std::array<prometheus::Gauge*, kTierLabels.size()> prefix_cache_bytes =
      add_series(gauge("prefix_cache_bytes", "Bytes of prefix blocks"), "tier", kTierLabels);
  std::array<prometheus::Gauge*, kTierLabels.size()> prefix_cache_entries =
      add_series(gauge("prefix_cache_entries", "Prefix blocks in a tier"), "tier", kTierLabels);
  std::array<std::array<prometheus::Counter*, kEvictionLabels.size()>, kTierLabels.size()> cache_evictions = add_pairs(
      counter("cache_evictions_total", "Modules dropped, by why"), "tier", kTierLabels, "reason", kEvictionLabels);
  TierPairs<prometheus::Counter> cache_transfer_bytes =
      add_pairs(counter("cache_transfer_bytes_total", "Bytes of modules carried between tiers"), "from", kTierLabels,
                "to", kTierLabels);
  TierPairs<prometheus::Histogram> cache_transfer_seconds =
      add_pairs(histogram("cache_transfer_seconds", "Time to carry a module between tiers"), "from", kTierLabels, "to",
                kTierLabels, kRequestBuckets);
  std::array<prometheus::Counter*, kTierLabels.size()> cache_corrupt = add_series(
      counter("cache_corrupt_total", "Records that were cut short, damaged or foreign, and have been removed"), "tier",
      kTierLabels);
  std::array<prometheus::Counter*, kTierLabels.size()> tier_errors =
      add_series(counter("tier_errors_total", "Reads and writes of a tier that failed"), "tier", kTierLabels);
  std::array<prometheus::Counter*, kTierLabels.size()> tier_bypasses = add_series(
      counter("tier_bypasses_total", "Modules computed because the tier would have been slower"), "tier", kTierLabels);
  prometheus::Gauge& kv_blocks_free =
      gauge("kv_blocks_free", "Blocks for sequences that fit in the memory that is free now").Add({});
  prometheus::Gauge& schemas = gauge("schemas", "Registered schemas").Add({});

  // Engine
  prometheus::Histogram& batch_size = histogram("batch_size", "Sequences in an engine step").Add({}, kBatchSizeBuckets);
  prometheus::Histogram& batch_tokens =
      histogram("batch_tokens", "Tokens computed in an engine step").Add({}, kBatchTokensBuckets);

  std::vector<std::string> routes;

  std::mutex collector_mutex;  // held while the collector runs, so that set_collector can wait for its end
  std::function<void()> collector;

  explicit Impl(const Options& options) : routes(options.routes) {
    const BuildInfo& build = options.build_info;
    gauge("build_info", "Always 1; the labels say what runs")
        .Add({{"version", build.version},
              {"model", build.model},
              {"device", build.device},
              {"weights", build.weights},
              {"kv_dtype", build.kv_dtype}})
        .Set(1);
    if (std::find(routes.begin(), routes.end(), kOtherRoute) == routes.end()) {
      routes.emplace_back(kOtherRoute);
    }
    for (const std::string& route : routes) {
      requests.Add({{"route", route}, {"outcome", std::string(kOutcomeOk)}});
    }
  }
};

Metrics::Metrics(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
Metrics::~Metrics() = default;

Histogram Metrics::time_to_first_token(CacheLabel cache) const {
  return Histogram(at(impl_->time_to_first_token, cache));
}
Histogram Metrics::inter_token_latency() const { return Histogram(impl_->inter_token_latency); }
Histogram Metrics::request_duration() const { return Histogram(impl_->request_duration); }
Histogram Metrics::request_queue() const { return Histogram(impl_->request_queue); }
Histogram Metrics::stage(StageLabel stage) const { return Histogram(at(impl_->stage, stage)); }
Gauge Metrics::requests_running() const { return Gauge(impl_->requests_running); }
Gauge Metrics::requests_waiting() const { return Gauge(impl_->requests_waiting); }

void Metrics::count_request(std::string_view route, std::optional<ErrorCode> outcome) {
  const auto& routes = impl_->routes;
  const bool known = std::find(routes.begin(), routes.end(), route) != routes.end();
  const std::string_view outcome_label = outcome ? to_string(*outcome) : kOutcomeOk;
  impl_->requests.Add({{"route", std::string(known ? route : kOtherRoute)}, {"outcome", std::string(outcome_label)}})
      .Increment();
}

Counter Metrics::module_lookups() const { return Counter(impl_->module_lookups); }
Counter Metrics::module_hits(TierLabel tier) const { return Counter(at(impl_->module_hits, tier)); }
Counter Metrics::prefix_lookup_tokens() const { return Counter(impl_->prefix_lookup_tokens); }
Counter Metrics::prefix_hit_tokens() const { return Counter(impl_->prefix_hit_tokens); }
Counter Metrics::prompt_tokens(SourceLabel source) const { return Counter(at(impl_->prompt_tokens, source)); }
Counter Metrics::generated_tokens() const { return Counter(impl_->generated_tokens); }
Counter Metrics::ttft_saved_seconds() const { return Counter(impl_->ttft_saved_seconds); }
Counter Metrics::module_encodes() const { return Counter(impl_->module_encodes); }
Histogram Metrics::module_encode() const { return Histogram(impl_->module_encode); }

Gauge Metrics::cache_bytes(TierLabel tier) const { return Gauge(at(impl_->cache_bytes, tier)); }
Gauge Metrics::cache_capacity_bytes(TierLabel tier) const { return Gauge(at(impl_->cache_capacity_bytes, tier)); }
Gauge Metrics::cache_pinned_bytes(TierLabel tier) const { return Gauge(at(impl_->cache_pinned_bytes, tier)); }
Gauge Metrics::cache_entries(TierLabel tier) const { return Gauge(at(impl_->cache_entries, tier)); }
Gauge Metrics::prefix_cache_bytes(TierLabel tier) const { return Gauge(at(impl_->prefix_cache_bytes, tier)); }
Gauge Metrics::prefix_cache_entries(TierLabel tier) const { return Gauge(at(impl_->prefix_cache_entries, tier)); }
Counter Metrics::cache_evictions(TierLabel tier, EvictionLabel reason) const {
  return Counter(at(impl_->cache_evictions.at(static_cast<std::size_t>(tier)), reason));
}
Counter Metrics::cache_transfer_bytes(TierLabel from, TierLabel to) const {
  return Counter(at(impl_->cache_transfer_bytes.at(static_cast<std::size_t>(from)), to));
}
Histogram Metrics::cache_transfer_seconds(TierLabel from, TierLabel to) const {
  return Histogram(at(impl_->cache_transfer_seconds.at(static_cast<std::size_t>(from)), to));
}
Counter Metrics::cache_corrupt(TierLabel tier) const { return Counter(at(impl_->cache_corrupt, tier)); }
Counter Metrics::tier_errors(TierLabel tier) const { return Counter(at(impl_->tier_errors, tier)); }
Counter Metrics::tier_bypasses(TierLabel tier) const { return Counter(at(impl_->tier_bypasses, tier)); }
Gauge Metrics::kv_blocks_free() const { return Gauge(impl_->kv_blocks_free); }
Gauge Metrics::schemas() const { return Gauge(impl_->schemas); }
Histogram Metrics::batch_size() const { return Histogram(impl_->batch_size); }
Histogram Metrics::batch_tokens() const { return Histogram(impl_->batch_tokens); }

void Metrics::set_collector(std::function<void()> collector) {
  const std::lock_guard lock(impl_->collector_mutex);
  impl_->collector = std::move(collector);
}

std::string Metrics::expose() {
  {
    const std::lock_guard lock(impl_->collector_mutex);
    if (impl_->collector) {
      impl_->collector();
    }
  }
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  append_process_families(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace promptcached
