#include "server/connection.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace promptcached::server {
namespace {

constexpr std::size_t kInputBuffer = 16 * 1024;
constexpr std::size_t kOutputBuffer = 64 * 1024;
constexpr auto kLingerTime = std::chrono::seconds(10);
constexpr std::size_t kLingerBytes = std::size_t{256} << 20;

}  // namespace

Connection::Connection(std::unique_ptr<Transport> transport, std::chrono::milliseconds stall)
    : transport_(std::move(transport)), stall_(stall), input_(kInputBuffer) {}

void Connection::limit_reads(std::size_t bytes, Clock::time_point deadline) {
  read_budget_ = bytes;
  read_deadline_ = deadline;
  read_failure_ = ReadFailure::kNone;
}

// True when the transport may be tried again; errors and hang-ups count, since only the next call tells which.
bool Connection::wait(IoState wanted, Clock::time_point deadline) const {
  pollfd waiting{transport_->fd(), static_cast<short>(wanted == IoState::kWantsWrite ? POLLOUT : POLLIN), 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::clamp<long>(left, 0, 1'000'000'000)));
    if (ready >= 0 || errno != EINTR) {
      return ready > 0;
    }
  }
}

// Receives into the empty input buffer.
bool Connection::fill() {
  input_begin_ = input_end_ = 0;
  for (;;) {
    const IoResult result = transport_->read(input_.data(), input_.size());
    if (result.state == IoState::kDone) {
      input_end_ = result.bytes;
      return true;
    }
    if (result.state == IoState::kClosed) {
      read_failure_ = ReadFailure::kClosed;
      return false;
    }
    if (!wait(result.state, read_deadline_)) {
      read_failure_ = ReadFailure::kTimeout;
      return false;
    }
  }
}

bool Connection::wait_for_input(std::chrono::milliseconds wait_time) {
  if (input_begin_ != input_end_) {
    return true;
  }
  limit_reads(kInputBuffer, Clock::now() + wait_time);
  return fill();
}

std::size_t Connection::read(char* data, std::size_t size) {
  if (read_failure_ != ReadFailure::kNone || size == 0) {
    return 0;
  }
  if (read_budget_ == 0) {
    read_failure_ = ReadFailure::kLimit;
    return 0;
  }
  if (input_begin_ == input_end_) {
    flush();
    if (!fill()) {
      return 0;
    }
  }
  const std::size_t count = std::min({size, input_end_ - input_begin_, read_budget_});
  std::memcpy(data, input_.data() + input_begin_, count);
  input_begin_ += count;
  read_budget_ -= count;
  return count;
}

bool Connection::read_exactly(char* data, std::size_t size) {
  while (size > 0) {
    const std::size_t count = read(data, size);
    if (count == 0) {
      return false;
    }
    data += count;
    size -= count;
  }
  return true;
}

bool Connection::write(std::string_view data) {
  output_ += data;
  return output_.size() < kOutputBuffer ? !write_failed_ : flush();
}

bool Connection::flush() {
  std::string_view left = output_;
  while (!left.empty() && !write_failed_) {
    const IoResult result = transport_->write(left.data(), left.size());
    if (result.state == IoState::kDone) {
      left.remove_prefix(result.bytes);
    } else if (result.state == IoState::kClosed || !wait(result.state, Clock::now() + stall_)) {
      write_failed_ = true;
    }
  }
  output_.clear();
  return !write_failed_;
}

void Connection::close(bool linger) {
  flush();
  transport_->finish_writing();
  if (!linger || write_failed_) {
    return;
  }
  limit_reads(kLingerBytes, Clock::now() + kLingerTime);
  input_begin_ = input_end_ = 0;
  while (read_budget_ > 0 && fill()) {
    read_budget_ -= std::min(read_budget_, input_end_);
  }
}

}  // namespace promptcached::server
