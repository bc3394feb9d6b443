#include "server/option_table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "server/units.h"

namespace promptcached::server {
namespace {

using Setter = std::function<std::optional<std::string>(Config&, const std::string&)>;
using Complaint = std::optional<std::string>;

// ---- Setters: from a text to a field ----
// `Field` returns a reference to the field of a Config.

template <typename Field>
Setter text(Field field) {
  return [field](Config& config, const std::string& value) -> Complaint {
    if (value.empty()) {
      return "a value";
    }
    field(config) = value;
    return std::nullopt;
  };
}

template <typename Field>
Setter choice(Field field, std::initializer_list<std::string> choices) {
  return [field, known = std::vector<std::string>(choices)](Config& config, const std::string& value) -> Complaint {
    if (std::find(known.begin(), known.end(), value) == known.end()) {
      std::string list;
      for (const std::string& one : known) {
        list += (list.empty() ? "" : ", ") + one;
      }
      return "one of " + list;
    }
    field(config) = value;
    return std::nullopt;
  };
}

template <typename Field>
Setter integer(Field field, std::int64_t min, std::int64_t max) {
  return [field, min, max](Config& config, const std::string& value) -> Complaint {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    if (parsed.ec != std::errc{} || parsed.ptr != value.data() + value.size() || number < min || number > max) {
      return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
    }
    field(config) = static_cast<std::remove_reference_t<decltype(field(config))>>(number);
    return std::nullopt;
  };
}

template <typename Field>
Setter bytes(Field field, std::size_t min) {
  return [field, min](Config& config, const std::string& value) -> Complaint {
    const auto number = parse_bytes(value);
    if (!number || *number < min) {
      return "a size of at least " + show_bytes(min) + ", such as 512MiB or 8GiB";
    }
    field(config) = *number;
    return std::nullopt;
  };
}

template <typename Field>
Setter duration(Field field, std::chrono::milliseconds min) {
  return [field, min](Config& config, const std::string& value) -> Complaint {
    const auto time = parse_duration(value);
    if (!time || *time < min) {
      return "a duration of at least " + show_duration(min) + ", such as 600s or 500ms";
    }
    field(config) = *time;
    return std::nullopt;
  };
}

template <typename Field>
Setter flag(Field field) {
  return [field](Config& config, const std::string& value) -> Complaint {
    if (value != "true" && value != "false") {
      return "true or false";
    }
    field(config) = value == "true";
    return std::nullopt;
  };
}

// For what is on by default; a file may also give a boolean.
template <typename Field>
Setter on_or_off(Field field) {
  return [field](Config& config, const std::string& value) -> Complaint {
    const bool on = value == "on" || value == "true";
    if (!on && value != "off" && value != "false") {
      return "on or off";
    }
    field(config) = on;
    return std::nullopt;
  };
}

Setter listen_address(bool operations) {
  return [operations](Config& config, const std::string& value) -> Complaint {
    Result<Address> address = parse_address(value);
    if (!address) {
      return "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080";
    }
    (operations ? config.ops_listen.emplace() : config.listen) = std::move(*address);
    return std::nullopt;
  };
}

// "cpu", "cuda", "cuda:1"; whether the machine has it is found out when the model is loaded.
Complaint set_device(Config& config, const std::string& value) {
  const bool numbered = value.size() > 5 && value.starts_with("cuda:") &&
                        std::all_of(value.begin() + 5, value.end(), [](unsigned char c) { return std::isdigit(c); });
  if (value != "auto" && value != "cpu" && value != "cuda" && !numbered) {
    return "auto, cpu, cuda or cuda:N";
  }
  config.model.device = value;
  return std::nullopt;
}

Complaint set_max_body_bytes(Config& config, const std::string& value) {
  Complaint complaint = bytes([](Config& c) -> auto& { return c.http.max_body_bytes; }, 1024)(config, value);
  // PML may be as long as a body: a smaller limit of its own would only make two answers for one fault.
  config.service.pml_limits.max_bytes = config.http.max_body_bytes;
  config.engine.pml_limits.max_bytes = config.http.max_body_bytes;
  return complaint;
}

Complaint set_host_bytes(Config& config, const std::string& value) {
  std::size_t number = 0;
  Complaint complaint = bytes([&](Config&) -> auto& { return number; }, 0)(config, value);
  if (!complaint) {
    config.engine.tiers.host_bytes = number;
  }
  return complaint;
}

// Sets the one of an enum's values whose name is given.
template <typename Enum>
Complaint set_by_name(Enum& field, std::initializer_list<Enum> choices, const std::string& value) {
  std::string list;
  for (const Enum choice : choices) {
    if (to_string(choice) == value) {
      field = choice;
      return std::nullopt;
    }
    list += (list.empty() ? "" : ", ") + std::string(to_string(choice));
  }
  return "one of " + list;
}

Complaint set_kv_form(Config& config, const std::string& value) {
  using enum kv::KvCodec::Form;
  return set_by_name(config.engine.tiers.codec.form, {kRaw, kFp16, kBf16, kInt8}, value);
}

Complaint set_kv_compression(Config& config, const std::string& value) {
  using enum kv::KvCodec::Compression;
  return set_by_name(config.engine.tiers.codec.compression, {kNone, kZstd, kLz4}, value);
}

Complaint set_eviction(Config& config, const std::string& value) {
  return set_by_name(config.engine.kv_eviction, {kv::EvictionKind::kCost, kv::EvictionKind::kLru}, value);
}

Complaint set_log_level(Config& config, const std::string& value) {
  const auto level = log::parse_level(value);
  if (!level) {
    return "debug, info, warn, error or off";
  }
  config.log.level = *level;
  return std::nullopt;
}

Complaint set_log_format(Config& config, const std::string& value) {
  const auto format = log::parse_format(value);
  if (!format) {
    return "text or json";
  }
  config.log.format = *format;
  return std::nullopt;
}

// ---- The table, group by group ----

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

void add_model_options(std::vector<Option>& table, const Config& defaults) {
  const std::string group = "Model";
  table.push_back({"model", group, "PATH",
                   "The model: a Hugging Face directory with config.json, *.safetensors and tokenizer.json, or a GGUF "
                   "file (required)",
                   "", text([](Config& c) -> auto& { return c.model.path; })});
  table.push_back({"served-model-name", group, "NAME", "What clients see as the model's name",
                   "the directory's or file's name", text([](Config& c) -> auto& { return c.served_model_name; })});
  table.push_back(
      {"device", group, "DEVICE", "Where to compute: auto, cpu, cuda, cuda:N", defaults.model.device, set_device});
  table.push_back(
      {"weights", group, "TYPE",
       "Type of the weights: auto, fp32, bf16, fp16, int8. auto: int8 on the CPU, bf16 on CUDA", defaults.model.weights,
       choice([](Config& c) -> auto& { return c.model.weights; }, {"auto", "fp32", "bf16", "fp16", "int8"})});
  table.push_back({"kv-dtype", group, "TYPE",
                   "Type of keys and values: auto, fp32, fp16, bf16. auto: fp16 on the CPU, bf16 on CUDA",
                   defaults.model.kv_dtype,
                   choice([](Config& c) -> auto& { return c.model.kv_dtype; }, {"auto", "fp32", "fp16", "bf16"})});
  table.push_back({"threads", group, "N", "CPU threads that compute", "physical cores",
                   integer([](Config& c) -> auto& { return c.model.threads; }, 1, 1024)});
  table.push_back({"simd", group, "SET",
                   "Instruction set of the CPU's loops: auto, or one below the best this processor has, such as SSE4",
                   defaults.model.simd,
                   choice([](Config& c) -> auto& { return c.model.simd; },
                          {"auto", "SSSE3", "SSE4", "AVX2", "AVX3", "AVX3_DL", "NEON"})});
  table.push_back({"max-model-len", group, "TOKENS",
                   "Longest prompt and answer together, if less than the model allows", "the model's",
                   integer([](Config& c) -> auto& { return c.model.max_model_len; }, 1, kMaxInt)});
  table.push_back({"dry-run", group, "",
                   "Show what the model takes (parameters, memory, computation) and exit; needs its config.json alone",
                   "", flag([](Config& c) -> auto& { return c.dry_run; })});
}

void add_cache_options(std::vector<Option>& table, const Config& defaults) {
  const std::string group = "Cache";
  table.push_back({"kv-device-bytes", group, "BYTES",
                   "Memory for keys and values on the device, of modules and of running sequences together",
                   "half of what is free",
                   bytes([](Config& c) -> auto& { return c.engine.kv_device_bytes; }, 1U << 20)});
  table.push_back(
      {"kv-eviction", group, "POLICY",
       "Which module goes when memory is short: cost (least seconds of recomputing saved by recent use, for "
       "its bytes) or lru (least recently used)",
       "cost", set_eviction});
  table.push_back({"prefix-cache", group, "on|off",
                   "Keep the keys and values of text outside modules, and of answers, for prompts that begin alike",
                   "on", on_or_off([](Config& c) -> auto& { return c.engine.prefix_cache; })});
  table.push_back({"kv-host-bytes", group, "BYTES",
                   "Memory of the computer for modules that were evicted from the device; 0: none",
                   "a quarter of what is free", set_host_bytes});
  table.push_back({"kv-disk-path", group, "DIR",
                   "Keep modules in this directory as well, for the next start; one server alone may use it", "",
                   text([](Config& c) -> auto& { return c.engine.tiers.disk_path; })});
  table.push_back({"kv-disk-bytes", group, "BYTES", "How much of it", show_bytes(defaults.engine.tiers.disk_bytes),
                   bytes([](Config& c) -> auto& { return c.engine.tiers.disk_bytes; }, 1U << 20)});
  table.push_back({"kv-remote", group, "URI",
                   "Share modules with other servers through redis://, rediss://, redis-cluster:// or s3:// (docs/"
                   "operations.md)",
                   "", text([](Config& c) -> auto& { return c.engine.tiers.remote_uri; })});
  table.push_back(
      {"kv-remote-timeout", group, "TIME", "How long that store may take to answer",
       show_duration(defaults.engine.tiers.remote_timeout),
       duration([](Config& c) -> auto& { return c.engine.tiers.remote_timeout; }, std::chrono::milliseconds(1))});
  table.push_back({"kv-codec", group, "FORM",
                   "Numbers of modules below the device: raw (as on the device), fp16, bf16, int8. docs/operations.md "
                   "tells what each changes",
                   "raw", set_kv_form});
  table.push_back({"kv-compression", group, "NAME", "Compression of modules below the device: none, zstd, lz4", "none",
                   set_kv_compression});
  table.push_back({"data-dir", group, "DIR", "Keep registered schemas in this directory, across restarts", "",
                   text([](Config& c) -> auto& { return c.data_dir; })});
  table.push_back({"schemas", group, "DIR", "Register every .xml and .pml file of this directory at start", "",
                   text([](Config& c) -> auto& { return c.schemas; })});
  table.push_back({"warm", group, "", "Report ready only when the schemas of --schemas and --data-dir are encoded", "",
                   flag([](Config& c) -> auto& { return c.warm; })});
}

void add_load_options(std::vector<Option>& table, const Config& defaults) {
  const std::string group = "Load";
  table.push_back({"max-batch-tokens", group, "N", "Tokens computed in one step",
                   std::to_string(defaults.engine.max_batch_tokens),
                   integer([](Config& c) -> auto& { return c.engine.max_batch_tokens; }, 1, 1'000'000)});
  table.push_back({"max-running", group, "N", "Requests that generate at the same time",
                   std::to_string(defaults.engine.max_running),
                   integer([](Config& c) -> auto& { return c.engine.max_running; }, 1, 100'000)});
  table.push_back({"max-queue", group, "N", "Requests that may wait beyond those; more are answered 429",
                   std::to_string(defaults.engine.max_queue),
                   integer([](Config& c) -> auto& { return c.engine.max_queue; }, 0, 1'000'000)});
  table.push_back({"max-connections", group, "N", "Open connections; more are answered 503",
                   std::to_string(defaults.http.max_connections),
                   integer([](Config& c) -> auto& { return c.http.max_connections; }, 1, 100'000)});
  table.push_back({"max-body-bytes", group, "BYTES", "Longest request body; more is answered 413",
                   show_bytes(defaults.http.max_body_bytes), set_max_body_bytes});
  table.push_back(
      {"request-timeout", group, "TIME", "Longest time from a request's arrival to its last token",
       show_duration(defaults.service.request_timeout),
       duration([](Config& c) -> auto& { return c.service.request_timeout; }, std::chrono::milliseconds(1))});
  table.push_back({"drain-timeout", group, "TIME", "How long running requests may go on after SIGTERM",
                   show_duration(defaults.drain_timeout),
                   duration([](Config& c) -> auto& { return c.drain_timeout; }, std::chrono::milliseconds(0))});
}

void add_network_options(std::vector<Option>& table, const Config& defaults) {
  const std::string group = "Network";
  table.push_back({"listen", group, "HOST:PORT", "Where to serve", to_string(defaults.listen), listen_address(false)});
  table.push_back({"ops-listen", group, "HOST:PORT",
                   "Serve health, readiness, metrics and cache here as well, apart from clients' connections", "",
                   listen_address(true)});
  table.push_back({"api-keys", group, "FILE",
                   "Ask for an API key; one key a line, with scopes behind it if it has not all", "",
                   text([](Config& c) -> auto& { return c.api_keys; })});
  table.push_back({"tls-cert", group, "FILE", "Serve HTTPS with this certificate chain (PEM)", "",
                   text([](Config& c) -> auto& { return c.tls_cert; })});
  table.push_back({"tls-key", group, "FILE", "The certificate's private key (PEM)", "",
                   text([](Config& c) -> auto& { return c.tls_key; })});
}

void add_log_options(std::vector<Option>& table, const Config&) {
  const std::string group = "Logs and debugging";
  table.push_back({"log-level", group, "LEVEL", "debug, info, warn, error, off", "info", set_log_level});
  table.push_back({"log-format", group, "FORMAT", "text, json", "text", set_log_format});
  table.push_back({"log-prompts", group, "", "Write prompts to the log; without this it holds none of their text", "",
                   flag([](Config& c) -> auto& { return c.service.log_prompts; })});
  table.push_back({"kv-poison", group, "", "Overwrite freed keys and values, so that a use after release shows", "",
                   flag([](Config& c) -> auto& { return c.engine.poison_kv; })});
  table.push_back({"kv-check", group, "", "Prove the cache's accounts whenever the engine falls idle", "",
                   flag([](Config& c) -> auto& { return c.engine.check_kv; })});
}

std::vector<Option> make_table() {
  const Config defaults;
  std::vector<Option> table;
  add_model_options(table, defaults);
  add_cache_options(table, defaults);
  add_load_options(table, defaults);
  add_network_options(table, defaults);
  add_log_options(table, defaults);
  return table;
}

}  // namespace

const std::vector<Option>& option_table() {
  static const std::vector<Option> kTable = make_table();
  return kTable;
}

const Option* find_option(const std::string& name) {
  const std::vector<Option>& table = option_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Option& option) { return option.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::string environment_name(const Option& option) {
  std::string name = "PROMPTCACHED_" + option.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
  return name;
}

}  // namespace promptcached::server
