#include "api/http_types.h"

#include <algorithm>
#include <cctype>

namespace promptcached::api {

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::optional<std::string_view> find_header(const NameValues& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (same_ignoring_case(key, name)) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace promptcached::api
