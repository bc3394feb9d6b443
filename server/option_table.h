// The one table of options: command line, environment and file all come from it, and so does --help.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/config.h"

namespace promptcached::server {

struct Option {
  std::string name;        // "kv-device-bytes": --kv-device-bytes, PROMPTCACHED_KV_DEVICE_BYTES, kv-device-bytes = …
  std::string group;       // of --help
  std::string value_name;  // "BYTES"; empty: a flag
  std::string help;
  std::string default_text;  // as one would write it; empty: none
  // Sets it from its text; what a good value is when this is none.
  std::function<std::optional<std::string>(Config& config, const std::string& text)> set;
};

// In the order of --help. Defaults are read off a default Config, so they are stated nowhere twice.
const std::vector<Option>& option_table();

const Option* find_option(const std::string& name);
std::string environment_name(const Option& option);  // "PROMPTCACHED_KV_DEVICE_BYTES"

}  // namespace promptcached::server
