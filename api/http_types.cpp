#include "api/http_types.h"

#include <algorithm>
#include <cctype>

namespace promptcached::api {

std::optional<std::string_view> find_header(const NameValues& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    const bool same = std::equal(key.begin(), key.end(), name.begin(), name.end(),
                                 [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    if (same) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace promptcached::api
