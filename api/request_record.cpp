#include "api/request_record.h"

#include <algorithm>

#include "core/base/log.h"

namespace promptcached::api {
namespace {

using engine::FinishReason;

// By the slowest tier, unless something had to be computed.
CacheLabel cache_label_of(const engine::StartEvent& start) {
  std::size_t computed = 0;
  TierLabel slowest = TierLabel::kDevice;
  for (const engine::CachePartInfo& part : start.cache) {
    if (part.source == SourceLabel::kComputed) {
      ++computed;
    } else {
      slowest = std::max(slowest, tier_label(part.source));
    }
  }
  if (start.cache.empty()) {
    return CacheLabel::kNone;
  }
  if (computed == 0) {
    return cache_label(slowest);
  }
  return computed == start.cache.size() ? CacheLabel::kMiss : CacheLabel::kPartial;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

RequestRecord::RequestRecord(const Service& service, const HttpRequest& request)
    : service_(service),
      request_id_(request.request_id),
      method_(request.method),
      remote_address_(request.remote_address),
      arrival_(request.arrival) {}

void RequestRecord::set_route(std::string_view label, bool quiet) {
  route_ = label;
  quiet_ = quiet;
}

void RequestRecord::note_start(const engine::StartEvent& start) { cache_label_ = cache_label_of(start); }

void RequestRecord::note_end(const engine::DoneEvent& done) {
  if (done.finish_reason == FinishReason::kCancelled) {
    set_failed(ErrorCode::kCancelled);
  } else if (done.finish_reason == FinishReason::kError) {
    set_failed(ErrorCode::kInternal);
  }
}

void RequestRecord::note_first_text() {
  if (!first_text_seconds_) {
    first_text_seconds_ = seconds_since(arrival_);
  }
}

void RequestRecord::finish(int status, bool delivered) {
  if (!delivered && !failure_) {
    failure_ = ErrorCode::kCancelled;
  }
  const double seconds = seconds_since(arrival_);
  if (const auto backend = service_.backend()) {
    backend->metrics->count_request(route_, failure_);
    count(*backend->metrics, seconds);
  }

  const bool bug = failure_ == ErrorCode::kInternal;
  const log::Level level = bug ? log::Level::kError : quiet_ ? log::Level::kDebug : log::Level::kInfo;
  if (log::enabled(level)) {
    const bool gone = failure_ == ErrorCode::kCancelled;
    log::write(level, log::RequestId{request_id_}, "request",
               {{"method", method_},
                {"route", route_},
                {"status", gone ? 499 : status},
                {"outcome", failure_ ? to_string(*failure_) : "ok"},
                {"ms", seconds * 1000},
                {"client", remote_address_}});
  }
}

void RequestRecord::count(const Metrics& metrics, double seconds) const {
  metrics.request_duration().observe(seconds);
  if (parse_seconds_) {
    metrics.stage(StageLabel::kParse).observe(*parse_seconds_);
  }
  if (write_seconds_ > 0) {
    metrics.stage(StageLabel::kWrite).observe(write_seconds_);
  }
  if (first_text_seconds_ && !failure_) {
    metrics.time_to_first_token(cache_label_).observe(*first_text_seconds_);
  }
}

}  // namespace promptcached::api
