// Ids of what we make: unique in this process by a counter, among processes by its start.
#pragma once

#include <string>
#include <string_view>

namespace promptcached::api {

// `prefix` and 16 hexadecimal digits. Thread-safe.
std::string new_id(std::string_view prefix);

}  // namespace promptcached::api
