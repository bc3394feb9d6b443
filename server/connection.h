// Connection: buffered reading and writing for one client, with time limits. Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/transport.h"

namespace promptcached::server {

class Connection final {
 public:
  using Clock = std::chrono::steady_clock;
  enum class ReadFailure { kNone, kClosed, kTimeout, kLimit };

  // `stall`: how long the client may take to accept what is written before it counts as gone.
  Connection(std::unique_ptr<Transport> transport, std::chrono::milliseconds stall);

  int fd() const { return transport_->fd(); }

  // What the following reads may take: bytes until kLimit, time until kTimeout. Clears an earlier failure.
  void limit_reads(std::size_t bytes, Clock::time_point deadline);
  // Waits until there is something to read (true), the client has closed, or the time is over.
  bool wait_for_input(std::chrono::milliseconds wait);
  // At least one byte; 0 with read_failure() set. Sends what has been written first: the client may be waiting for it.
  std::size_t read(char* data, std::size_t size);
  // Exactly `size` bytes; false with read_failure() set.
  bool read_exactly(char* data, std::size_t size);
  ReadFailure read_failure() const { return read_failure_; }

  // Collects; what is large is sent at once. False when the client has gone.
  bool write(std::string_view data);
  bool flush();
  bool write_failed() const { return write_failed_; }

  // Sends what is left and says goodbye. With `linger`, the client may still be sending what nobody reads: closing at
  // once would make the kernel answer that with a reset, which can overtake the response. So it is taken and dropped,
  // within bounds.
  void close(bool linger);

 private:
  bool fill();
  bool wait(IoState wanted, Clock::time_point deadline) const;

  std::unique_ptr<Transport> transport_;
  const std::chrono::milliseconds stall_;
  std::vector<char> input_;
  std::size_t input_begin_ = 0;  // what has been received and not read: [input_begin_, input_end_)
  std::size_t input_end_ = 0;
  std::size_t read_budget_ = 0;
  Clock::time_point read_deadline_;
  ReadFailure read_failure_ = ReadFailure::kNone;
  std::string output_;
  bool write_failed_ = false;
};

}  // namespace promptcached::server
