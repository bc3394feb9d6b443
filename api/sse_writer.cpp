#include "api/sse_writer.h"

namespace promptcached::api {

NameValues event_stream_headers() { return {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}; }

void SseWriter::event(std::string_view event, const Json& data) {
  pending_ += "event: ";
  pending_ += event;
  pending_ += "\ndata: ";
  pending_ += to_text(data);
  pending_ += "\n\n";
}

void SseWriter::data(std::string_view data) {
  pending_ += "data: ";
  pending_ += data;
  pending_ += "\n\n";
}

void SseWriter::comment(std::string_view text) {
  pending_ += ": ";
  pending_ += text;
  pending_ += "\n\n";
}

bool SseWriter::flush() {
  if (pending_.empty()) {
    return true;
  }
  const bool written = out_.write(pending_);
  pending_.clear();
  return written;
}

}  // namespace promptcached::api
