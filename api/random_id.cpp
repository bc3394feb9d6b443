#include "api/random_id.h"

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <random>

namespace promptcached::api {

std::string new_id(std::string_view prefix) {
  static const std::uint32_t kProcess = std::random_device{}();
  static std::atomic<std::uint32_t> counter{0};
  char digits[17];
  std::snprintf(digits, sizeof digits, "%08" PRIx32 "%08" PRIx32, kProcess, counter.fetch_add(1));
  return std::string(prefix) + digits;
}

}  // namespace promptcached::api
