// Metrics: everything promptcached tells Prometheus, in one place.
//
// Every metric is a method here and every label an enum, so no label can hold text a client chose. The names, buckets
// and meanings are those of docs/metrics.md. prometheus-cpp stays in metrics.cpp.
//
//   metrics.time_to_first_token(CacheLabel::kDevice).observe(seconds);
//   metrics.module_lookups().add(plan.modules.size());
//
// Thread-safe.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace promptcached {

// Handles: cheap to copy, valid as long as their Metrics.
class Counter final {
 public:
  explicit Counter(prometheus::Counter& counter) : counter_(&counter) {}
  // What is not a positive finite number is ignored: a counter never falls.
  void add(double amount = 1) const;
  double value() const;

 private:
  prometheus::Counter* counter_;
};

class Gauge final {
 public:
  explicit Gauge(prometheus::Gauge& gauge) : gauge_(&gauge) {}
  void set(double value) const;
  void add(double amount) const;  // may be negative
  double value() const;

 private:
  prometheus::Gauge* gauge_;
};

class Histogram final {
 public:
  explicit Histogram(prometheus::Histogram& histogram) : histogram_(&histogram) {}
  // Negative values count as 0 (a clock cannot run backwards, a difference of two can round); NaN is ignored.
  void observe(double value) const;

 private:
  prometheus::Histogram* histogram_;
};

enum class StageLabel { kParse, kQueue, kLoad, kPrefill, kDecode, kWrite };
enum class TierLabel { kDevice, kHost, kDisk, kRemote };
std::string_view to_string(TierLabel tier);
// Where a prompt token's KV came from: a tier, or it was computed. The tiers in their order, as in CacheLabel.
enum class SourceLabel { kDevice, kHost, kDisk, kRemote, kComputed };
std::string_view to_string(SourceLabel source);
// Where a request's modules were: the slowest tier that gave one, some computed for it, all computed, or a prompt
// without modules.
enum class CacheLabel { kDevice, kHost, kDisk, kRemote, kPartial, kMiss, kNone };

inline SourceLabel source_label(TierLabel tier) { return static_cast<SourceLabel>(tier); }
inline CacheLabel cache_label(TierLabel tier) { return static_cast<CacheLabel>(tier); }
inline TierLabel tier_label(SourceLabel source) {  // not of kComputed
  assert(source != SourceLabel::kComputed);
  return static_cast<TierLabel>(source);
}

enum class EvictionLabel { kCapacity, kTtl, kRequested, kReplaced };

class Metrics final {
 public:
  // What build_info says.
  struct BuildInfo {
    std::string version;
    std::string model;     // the served model name
    std::string device;    // "cpu", "cuda"
    std::string weights;   // "fp32", …
    std::string kv_dtype;  // "fp32", …
  };
  struct Options {
    BuildInfo build_info;
    // The `route` labels of requests_total, from the one list of routes ("generate", "schemas", …). A request to
    // anything else counts as "other".
    std::vector<std::string> routes;
  };

  explicit Metrics(const Options& options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // ---- Requests ----
  // From the request's arrival to the first text handed to the socket, queueing included. Failed and cancelled
  // requests add nothing.
  Histogram time_to_first_token(CacheLabel cache) const;
  Histogram inter_token_latency() const;
  Histogram request_duration() const;
  Histogram request_queue() const;
  Histogram stage(StageLabel stage) const;
  Gauge requests_running() const;
  Gauge requests_waiting() const;
  // Once per request. `outcome`: nullopt for "ok", else the error's code, also for errors after the first token.
  void count_request(std::string_view route, std::optional<ErrorCode> outcome);

  // ---- Reuse ----
  // Once per request and module (the root text counts as one); a retry or recomputation is not a look-up. Count a
  // look-up before its hit: then no scrape sees more hits than look-ups.
  Counter module_lookups() const;
  Counter module_hits(TierLabel tier) const;
  // The same of prompts' own tokens: all but the last of each are looked up.
  Counter prefix_lookup_tokens() const;
  Counter prefix_hit_tokens() const;
  Counter prompt_tokens(SourceLabel source) const;
  Counter generated_tokens() const;
  // Estimated: cached tokens times the measured prefill cost per token.
  Counter ttft_saved_seconds() const;
  Counter module_encodes() const;
  Histogram module_encode() const;

  // ---- Cache ----
  Gauge cache_bytes(TierLabel tier) const;
  Gauge cache_capacity_bytes(TierLabel tier) const;
  Gauge cache_pinned_bytes(TierLabel tier) const;
  Gauge cache_entries(TierLabel tier) const;
  Gauge prefix_cache_bytes(TierLabel tier) const;
  Gauge prefix_cache_entries(TierLabel tier) const;
  Counter cache_evictions(TierLabel tier, EvictionLabel reason) const;
  Counter cache_transfer_bytes(TierLabel from, TierLabel to) const;
  Histogram cache_transfer_seconds(TierLabel from, TierLabel to) const;
  // Records that were cut short, damaged, or of another version or model, and have been removed.
  Counter cache_corrupt(TierLabel tier) const;
  Counter tier_errors(TierLabel tier) const;    // the tier could not be read or written
  Counter tier_bypasses(TierLabel tier) const;  // it would have been slower than computing
  Gauge kv_blocks_free() const;
  Gauge schemas() const;

  // ---- Engine: one observation per step ----
  Histogram batch_size() const;    // sequences
  Histogram batch_tokens() const;  // tokens computed

  // Called at the start of every expose() to refresh gauges; may be empty. When set_collector returns, the previous
  // collector has finished and is not called again: clear it before what it reads goes away. The collector itself
  // must call neither function.
  void set_collector(std::function<void()> collector);

  // Everything, process_* included, in the Prometheus text format (version 0.0.4).
  std::string expose();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace promptcached
