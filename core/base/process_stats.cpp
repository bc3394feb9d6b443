#include "core/base/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace promptcached {
namespace {

// Fields of /proc/self/stat counted as in proc(5), less the three that come up to the state.
constexpr std::size_t kUserTicks = 14 - 3;
constexpr std::size_t kSystemTicks = 15 - 3;
constexpr std::size_t kThreads = 20 - 3;
constexpr std::size_t kStartTicks = 22 - 3;
constexpr std::size_t kVirtualBytes = 23 - 3;
constexpr std::size_t kResidentPages = 24 - 3;

// The numbers of /proc/self/stat from field 3 on. The second field is the command in brackets and may hold anything,
// so what counts begins after the last ')'.
std::vector<std::string> read_stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::vector<std::string> fields;
  const std::size_t end_of_command = line.rfind(')');
  if (end_of_command == std::string::npos) {
    return fields;
  }
  std::istringstream rest(line.substr(end_of_command + 1));
  for (std::string field; rest >> field;) {
    fields.push_back(std::move(field));
  }
  return fields;
}

// When the machine started, in Unix time; 0 when /proc/stat does not say.
double boot_time_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  while (file >> name) {
    if (name == "btime") {
      double seconds = 0;
      file >> seconds;
      return seconds;
    }
    file.ignore(1 << 20, '\n');
  }
  return 0;
}

std::int64_t count_open_fds() {
  std::int64_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // less the one that listed them
}

}  // namespace

ProcessStats read_process_stats() {
  ProcessStats stats;
  const std::vector<std::string> fields = read_stat_fields();
  if (fields.size() > kResidentPages) {
    const double ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
    stats.cpu_seconds = (std::stod(fields[kUserTicks]) + std::stod(fields[kSystemTicks])) / ticks_per_second;
    stats.threads = std::stoll(fields[kThreads]);
    stats.start_time_seconds = boot_time_seconds() + std::stod(fields[kStartTicks]) / ticks_per_second;
    stats.virtual_bytes = std::stoull(fields[kVirtualBytes]);
    stats.resident_bytes = std::stoull(fields[kResidentPages]) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }
  stats.open_fds = count_open_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    stats.max_fds = static_cast<std::int64_t>(limit.rlim_cur);
  }
  return stats;
}

}  // namespace promptcached
