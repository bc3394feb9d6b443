#include "server/config.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "server/option_table.h"
#include "server/units.h"
#include "tests/catch.h"

namespace promptcached::server {
namespace {

using Environment = std::map<std::string, std::string>;

// A file that lasts as long as the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("promptcached-config-" + std::to_string(::getpid()) + "-" + std::to_string(++count) + ".toml");
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Config read(std::vector<std::string> arguments, const Environment& environment = {}) {
  arguments.insert(arguments.begin(), {"--model", "m"});
  const Result<Command> command = read_command(arguments, environment);
  if (!command) {
    FAIL(command.error().message);
  }
  REQUIRE_FALSE(command->print.has_value());
  return command->config;
}

std::string refusal(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  const Result<Command> command = read_command(arguments, environment);
  REQUIRE_FALSE(command.ok());
  CHECK(command.error().message.find('\n') == std::string::npos);
  return command.error().message;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string project_file(const std::string& name) {
  std::ifstream in(std::string(PROMPTCACHED_SOURCE_DIR) + "/" + name);
  std::stringstream text;
  text << in.rdbuf();
  REQUIRE_FALSE(text.str().empty());
  return text.str();
}

}  // namespace

TEST_CASE("every option reaches its component", "[server]") {
  const Config config = read({"--served-model-name=name",
                              "--device",
                              "cuda:1",
                              "--weights",
                              "bf16",
                              "--kv-dtype=fp16",
                              "--threads",
                              "3",
                              "--simd",
                              "SSE4",
                              "--max-model-len",
                              "4096",
                              "--kv-device-bytes",
                              "512MiB",
                              "--dry-run",
                              "--kv-eviction",
                              "lru",
                              "--prefix-cache",
                              "off",
                              "--schemas",
                              "dir",
                              "--data-dir",
                              "data",
                              "--warm",
                              "--max-batch-tokens",
                              "128",
                              "--max-running",
                              "5",
                              "--max-queue",
                              "0",
                              "--max-connections",
                              "7",
                              "--max-body-bytes",
                              "1MiB",
                              "--request-timeout",
                              "500ms",
                              "--drain-timeout",
                              "2m",
                              "--listen",
                              "[::1]:0",
                              "--ops-listen",
                              ":9090",
                              "--api-keys",
                              "keys",
                              "--tls-cert",
                              "cert",
                              "--tls-key",
                              "key",
                              "--log-level",
                              "debug",
                              "--log-format",
                              "json",
                              "--log-prompts",
                              "--kv-poison",
                              "--kv-check"});
  CHECK(config.model.path == "m");
  CHECK(config.served_model_name == "name");
  CHECK(config.model.device == "cuda:1");
  CHECK(config.model.weights == "bf16");
  CHECK(config.model.kv_dtype == "fp16");
  CHECK(config.model.threads == 3);
  CHECK(config.model.simd == "SSE4");
  CHECK(config.model.max_model_len == 4096);
  CHECK(config.dry_run);
  CHECK(config.engine.kv_device_bytes == std::size_t{512} << 20);
  CHECK(config.engine.kv_eviction == kv::EvictionKind::kLru);
  CHECK_FALSE(config.engine.prefix_cache);
  CHECK(config.schemas == "dir");
  CHECK(config.data_dir == "data");
  CHECK(config.warm);
  CHECK(config.engine.max_batch_tokens == 128);
  CHECK(config.engine.max_running == 5);
  CHECK(config.engine.max_queue == 0);
  CHECK(config.http.max_connections == 7);
  CHECK(config.http.max_body_bytes == std::size_t{1} << 20);
  CHECK(config.engine.pml_limits.max_bytes == std::size_t{1} << 20);
  CHECK(config.service.pml_limits.max_bytes == std::size_t{1} << 20);
  CHECK(config.service.request_timeout == std::chrono::milliseconds(500));
  CHECK(config.drain_timeout == std::chrono::minutes(2));
  CHECK(config.listen.host == "::1");
  CHECK(config.listen.port == 0);
  CHECK(config.ops_listen->host.empty());
  CHECK(config.ops_listen->port == 9090);
  CHECK(config.api_keys == "keys");
  CHECK(config.tls_cert == "cert");
  CHECK(config.log.level == log::Level::kDebug);
  CHECK(config.log.format == log::Format::kJson);
  CHECK(config.service.log_prompts);
  CHECK(config.engine.poison_kv);
  CHECK(config.engine.check_kv);
}

// The defaults of the documents are those of the components.
TEST_CASE("defaults", "[server]") {
  const Config config = read({});
  CHECK(to_string(config.listen) == "127.0.0.1:8080");
  CHECK(config.http.max_body_bytes == std::size_t{8} << 20);
  CHECK(config.http.max_connections == 1024);
  CHECK(config.engine.max_batch_tokens == 512);
  CHECK(config.engine.max_running == 64);
  CHECK(config.engine.max_queue == 256);
  CHECK(config.service.request_timeout == std::chrono::seconds(600));
  CHECK(config.drain_timeout == std::chrono::seconds(30));
  const std::string page = project_file("docs/configuration.md");
  const std::string example = project_file("config/promptcached.toml");
  for (const Option& option : option_table()) {
    CAPTURE(option.name);
    CHECK(contains(page, "`--" + option.name + "`"));
    CHECK(contains(example, "\n# " + option.name + " = ") + contains(example, "\n" + option.name + " = ") == 1);
  }
  for (const char* name : {"max-batch-tokens", "max-queue", "max-body-bytes", "request-timeout", "listen"}) {
    CHECK(contains(page, "`--" + std::string(name) + "` | " + find_option(name)->default_text + " |"));
  }
}

TEST_CASE("the example file is good, every line of it", "[server]") {
  std::istringstream lines(project_file("config/promptcached.toml"));
  std::string uncommented;
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find(" = ");
    const bool example =
        line.rfind("# ", 0) == 0 && equals != std::string::npos && find_option(line.substr(2, equals - 2)) != nullptr;
    uncommented += (example ? line.substr(2) : line) + "\n";
  }
  const TemporaryFile file(uncommented);
  const Result<Command> command = read_command({"--config", file.path()}, {});
  if (!command) {
    FAIL(command.error().message);
  }
  CHECK(command->config.model.path == "models/smollm2-135m-instruct");
  CHECK(command->config.model.threads == 4);
}

TEST_CASE("flags win over the environment, the environment over the file", "[server]") {
  const TemporaryFile file("model = 'file'\nmax-queue = 1\nmax-running = 1\nwarm = true\nschemas = 'd'\n");
  const Environment environment = {{"PROMPTCACHED_MAX_QUEUE", "2"},
                                   {"PROMPTCACHED_MAX_RUNNING", "2"},
                                   {"PROMPTCACHED_WARM", "false"},
                                   {"HOME", "/root"}};
  const Config config = read({"--config", file.path(), "--max-queue", "3"}, environment);
  CHECK(config.model.path == "m");
  CHECK(config.engine.max_queue == 3);
  CHECK(config.engine.max_running == 2);
  CHECK_FALSE(config.warm);
  const Result<Command> by_variable = read_command({}, {{"PROMPTCACHED_CONFIG", file.path()}});
  REQUIRE(by_variable.ok());
  CHECK(by_variable->config.model.path == "file");
  CHECK(by_variable->config.warm);
}

TEST_CASE("of a flag given twice the last one counts", "[server]") {
  CHECK(read({"--max-queue", "1", "--max-queue=2"}).engine.max_queue == 2);
}

TEST_CASE("unknown names are refused with the nearest", "[server]") {
  CHECK(contains(refusal({"--kv-device-byte", "1GiB"}), "did you mean '--kv-device-bytes'?"));
  CHECK(contains(refusal({"--max-qeue=5"}), "did you mean '--max-queue'?"));
  CHECK(contains(refusal({"serve"}), "unknown argument 'serve'"));
  CHECK(contains(refusal({}, {{"PROMPTCACHED_MAX_QEUE", "5"}}), "did you mean 'PROMPTCACHED_MAX_QUEUE'?"));
  const TemporaryFile misspelt("\nmax-qeue = 5\n");
  const std::string message = refusal({"--config", misspelt.path()});
  CHECK(contains(message, ".toml:2: max-qeue is not an option (did you mean 'max-queue'?)"));
  const TemporaryFile underscores("max_queue = 5\n");
  CHECK(contains(refusal({"--config", underscores.path()}), "did you mean 'max-queue'?"));
  const TemporaryFile section("[server]\nmax-queue = 5\n");
  CHECK(contains(refusal({"--config", section.path()}), "server is not an option"));
}

TEST_CASE("bad values are refused, naming where they stand", "[server]") {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"kv-device-bytes", {"12", "lots", "-1GiB", "1 GiB", "GiB", "99999999TiB"}},
      {"request-timeout", {"600", "-1s", "1 s", "soon", "0s"}},
      {"max-queue", {"-1", "1.5", "many", "99999999999999999999"}},
      {"threads", {"0"}},
      {"listen", {"8080", "localhost", "127.0.0.1:99999", "127.0.0.1:http", "::1:80", "127.0.0.1:-1"}},
      {"weights", {"fp8"}},
      {"simd", {"sse4", "MMX"}},
      {"device", {"gpu", "cuda:", "cuda:x"}},
      {"log-level", {"loud"}},
      {"log-format", {"xml"}},
      {"warm", {"maybe"}},
      {"kv-eviction", {"fifo"}},
      {"prefix-cache", {"yes", "1"}},
      {"kv-host-bytes", {"lots", "-1GiB"}},
      {"kv-disk-bytes", {"12", "0"}},
      {"kv-codec", {"int4", "RAW"}},
      {"kv-compression", {"gzip"}},
  };
  for (const auto& [name, values] : cases) {
    for (const std::string& value : values) {
      CAPTURE(name, value);
      if (!find_option(name)->value_name.empty()) {
        CHECK(refusal({"--" + name + "=" + value}).rfind("--" + name + " must be ", 0) == 0);
      }
      const std::string variable = environment_name(*find_option(name));
      CHECK(refusal({}, {{variable, value}}).rfind(variable + " must be ", 0) == 0);
      const TemporaryFile file(name + " = '" + value + "'\n");
      CHECK(contains(refusal({"--config", file.path()}), ".toml:1: " + name + " must be "));
    }
  }
  refusal({"--max-queue"});
  refusal({"--model=", "--max-queue", "1"});
}

TEST_CASE("files that are none", "[server]") {
  CHECK(contains(refusal({"--config", "/nonexistent/missing.toml"}), "missing.toml"));
  const auto broken = [](const std::string& text) {
    const TemporaryFile file(text);
    return refusal({"--config", file.path()});
  };
  CHECK(contains(broken("model = \n"), ".toml:1: "));
  CHECK(contains(broken("max-queue = [1]\n"), ".toml:1: max-queue must be a string, an integer, true or false"));
  CHECK(contains(broken("max-queue = 1\nmax-queue = 2\n"), ".toml:2: "));
}

TEST_CASE("options that belong together", "[server]") {
  CHECK(contains(refusal({}), "--model is required"));
  CHECK(contains(refusal({"--model", "m", "--tls-cert", "c"}), "--tls-cert and --tls-key"));
  CHECK(contains(refusal({"--model", "m", "--warm"}), "--warm needs --schemas or --data-dir"));
  CHECK(read({"--warm", "--data-dir", "d"}).warm);
}

TEST_CASE("Kubernetes' variables are no options", "[server]") {
  const Config config = read({}, {{"PROMPTCACHED_SERVICE_HOST", "10.0.0.1"},
                                  {"PROMPTCACHED_SERVICE_PORT", "80"},
                                  {"PROMPTCACHED_PORT", "tcp://10.0.0.1:80"},
                                  {"PROMPTCACHED_PORT_80_TCP_ADDR", "10.0.0.1"}});
  CHECK(config.model.path == "m");
}

TEST_CASE("help and version", "[server]") {
  const std::string help = read_command({"--help"}, {})->print.value();
  for (const Option& option : option_table()) {
    CHECK(contains(help, "--" + option.name));
  }
  CHECK(contains(help, "[127.0.0.1:8080]"));
  const std::string version = read_command({"--version"}, {})->print.value();
  CHECK(version.rfind("promptcached ", 0) == 0);
  // The project's own.
  std::string number = version.substr(13);
  number.erase(number.find_last_not_of('\n') + 1);
  CHECK(contains(project_file("CMakeLists.txt"), "VERSION " + number + " "));
}

TEST_CASE("sizes and durations", "[server]") {
  CHECK(parse_bytes("512MiB") == std::size_t{512} << 20);
  CHECK(parse_bytes("1.5GiB") == std::size_t{3} << 29);
  CHECK(parse_bytes("2GB") == std::size_t{2'000'000'000});
  CHECK(parse_bytes("0") == std::size_t{0});
  for (const char* bad : {"", "MiB", "1 MiB", "1mib", "-1", "1e3", "nan", "inf", "0x10", "1MiBs"}) {
    CHECK_FALSE(parse_bytes(bad).has_value());
  }
  CHECK(parse_duration("600s") == std::chrono::seconds(600));
  CHECK(parse_duration("0.5s") == std::chrono::milliseconds(500));
  CHECK(parse_duration("1h") == std::chrono::hours(1));
  CHECK(parse_duration("10m") == std::chrono::minutes(10));
  for (const char* bad : {"", "1", "s", "1d", "1 s", "-1s"}) {
    CHECK_FALSE(parse_duration(bad).has_value());
  }
  CHECK(show_bytes(std::size_t{8} << 20) == "8MiB");
  CHECK(show_bytes(1500) == "1500B");
  CHECK(show_bytes(0) == "0B");
  CHECK(show_duration(std::chrono::seconds(600)) == "600s");
  CHECK(show_duration(std::chrono::milliseconds(1500)) == "1500ms");
}

}  // namespace promptcached::server
