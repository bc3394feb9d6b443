#include "api/http_types.h"

#include <strings.h>

namespace promptcached::api {

std::optional<std::string_view> find_header(const NameValues& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key.size() == name.size() && strncasecmp(key.data(), name.data(), name.size()) == 0) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace promptcached::api
