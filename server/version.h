// The server's version: the same as in CMakeLists.txt (tests/integration/test_configuration.py compares them).
#pragma once

namespace promptcached::server {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace promptcached::server
