// ProcessStats: what the kernel says about this process.
#pragma once

#include <cstdint>

namespace promptcached {

// Values the kernel does not tell are 0.
struct ProcessStats {
  double cpu_seconds = 0;         // user and system, all threads
  double start_time_seconds = 0;  // Unix time
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  std::int64_t threads = 0;
  std::int64_t open_fds = 0;
  std::int64_t max_fds = 0;  // soft limit
};

ProcessStats read_process_stats();

}  // namespace promptcached
