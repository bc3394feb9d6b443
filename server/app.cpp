#include "server/app.h"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/api_keys.h"
#include "api/router.h"
#include "api/routes.h"
#include "api/service.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/checkpoint/model_files.h"
#include "core/engine/engine.h"
#include "core/model/causal_lm.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"
#include "server/connection_watcher.h"
#include "server/http_server.h"
#include "server/schema_directory.h"
#include "server/schema_loader.h"
#include "server/transport.h"
#include "server/units.h"
#include "server/version.h"

namespace promptcached::server {
namespace {

using Clock = std::chrono::steady_clock;

// What is left of the exit's five seconds, once the engine is done, for responses to reach their clients.
constexpr auto kLastWrites = std::chrono::seconds(3);

// Health checks and scrapes need few connections, and must get them however many clients there are.
constexpr std::size_t kOperationsConnections = 64;

api::ServiceOptions service_options(const Config& config) {
  api::ServiceOptions options = config.service;
  options.version = kVersion;
  return options;
}

std::optional<api::ApiKeys> load_api_keys(const std::filesystem::path& file) {
  if (file.empty()) {
    return std::nullopt;
  }
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) {
    throw std::runtime_error("cannot read the API keys of " + file.string());
  }
  Result<api::ApiKeys> keys = api::ApiKeys::parse(text);
  if (!keys) {
    throw std::runtime_error("API keys of " + file.string() + ": " + keys.error().message);
  }
  return std::move(*keys);
}

std::string served_name(const Config& config) {
  if (!config.served_model_name.empty()) {
    return config.served_model_name;
  }
  std::filesystem::path model = std::filesystem::absolute(config.model.path).lexically_normal();
  if (!model.has_filename()) {  // "models/name/"
    model = model.parent_path();
  }
  // A directory's name may well have a dot in it.
  return model.extension() == ".gguf" ? model.stem().string() : model.filename().string();
}

// Every connection is a descriptor: take as many as the system lets us have.
void raise_descriptor_limit(std::size_t connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  constexpr std::size_t kOthers = 256;  // files of the model, libraries, logs
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < connections + kOthers) {
    log::warn("only {} open files are allowed, too few for {} connections (ulimit -n)",
              static_cast<std::uint64_t>(limit.rlim_cur), connections);
  }
}

// Everything that is made once the port is open. Members go in reverse: the engine before what it uses.
struct Loaded {
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<engine::Engine> engine;
  std::shared_ptr<const ChatTemplate> chat_template;
};

Loaded load(const Config& config, const std::string& name, std::shared_ptr<engine::SchemaJournal> journal) {
  model::LoadOptions options = config.model;
  options.log = [](const std::string& line) { log::info("{}", line); };
  log::info("loading the model {} from {}", name, options.path.string());
  std::unique_ptr<model::CausalLm> model = model::load_model(options);
  const model::ModelInfo info = model->info();

  pml::ModelText text;
  const checkpoint::ModelFiles files(options.path);  // once for both: a GGUF file's documents are made when asked for
  text.tokenizer = load_tokenizer(files);
  text.roles = load_role_texts(files);
  log::info("role texts: {}", text.roles.origin);
  text.max_positions = info.max_positions;

  Loaded loaded;
  loaded.chat_template = load_chat_template(files);
  loaded.metrics = std::make_unique<Metrics>(Metrics::Options{
      .build_info = {kVersion, name, info.device.substr(0, info.device.find(':')), info.weights_dtype, info.kv_dtype},
      .routes = api::route_labels()});
  engine::EngineOptions engine_options = config.engine;
  engine_options.schema_journal = std::move(journal);
  loaded.engine = engine::Engine::create(engine_options, std::move(model), std::move(text), *loaded.metrics);
  const kv::PoolStats stats = loaded.engine->pool().stats();
  log::info("model {}: {}, {:.0f} million parameters, on {} as {}, {} positions", name, info.architecture,
            static_cast<double>(info.parameters) / 1e6, info.device, info.weights_dtype, info.max_positions);
  log::info("KV: {:.0f} MiB as {}, room for {} tokens", static_cast<double>(stats.capacity_bytes) / (1 << 20),
            info.kv_dtype, stats.free_blocks * loaded.engine->pool().block_tokens());
  return loaded;
}

// The server while it runs: what stands on each other is made and destroyed in this order.
class App final {
 public:
  App(const Config& config, ShutdownSignals& signals)
      : config_(config),
        signals_(signals),
        keys_(load_api_keys(config.api_keys)),
        service_(service_options(config)),
        router_(service_, keys_ ? &*keys_ : nullptr),
        operations_router_(service_, keys_ ? &*keys_ : nullptr, api::Router::Listener::kOperations) {
    if (!config.tls_cert.empty()) {
      tls_.emplace(config.tls_cert, config.tls_key);
    }
  }

  int run() {
    const std::vector<SchemaFile> schemas = schemas_at_start();
    open_data_dir();
    open_ports();
    load_model(schemas);
    signals_.when_signalled([this] { begin_shutdown(); });
    service_.set_waiting_for(config_.warm ? "schemas are being encoded" : "");
    std::thread warming([this, &schemas] { warm_up(schemas); });
    if (!config_.warm) {
      log_ready();
    }
    signals_.wait();
    drain();
    warming.join();
    stop_serving();
    return failed_ ? 1 : 0;
  }

 private:
  std::vector<SchemaFile> schemas_at_start() const {
    if (config_.schemas.empty()) {
      return {};
    }
    Result<std::vector<SchemaFile>> files = read_schema_files(config_.schemas);
    if (!files) {
      throw std::runtime_error(files.error().message);
    }
    return std::move(*files);
  }

  void open_data_dir() {
    if (config_.data_dir.empty()) {
      return;
    }
    Result<std::unique_ptr<SchemaDirectory>> directory = SchemaDirectory::open(config_.data_dir);
    if (!directory) {
      throw std::runtime_error(directory.error().message);
    }
    data_dir_ = std::move(*directory);
  }

  void open_ports() {
    raise_descriptor_limit(config_.http.max_connections + kOperationsConnections);
    const TlsContext* tls = tls_ ? &*tls_ : nullptr;
    main_server_ = std::make_unique<HttpServer>(config_.listen, config_.http, router_, watcher_, tls);
    const char* scheme = tls != nullptr ? "https" : "http";
    log::info("listening on {}://{}", scheme, to_string(Address{config_.listen.host, main_server_->port()}));
    if (config_.ops_listen) {
      HttpServer::Options options = config_.http;
      options.max_connections = kOperationsConnections;
      operations_server_ =
          std::make_unique<HttpServer>(*config_.ops_listen, options, operations_router_, watcher_, nullptr);
      log::info("operations on http://{}", to_string(Address{config_.ops_listen->host, operations_server_->port()}));
    }
  }

  void load_model(const std::vector<SchemaFile>& schemas) {
    const std::string name = served_name(config_);
    loaded_ = load(config_, name, data_dir_);
    if (data_dir_ != nullptr) {
      // Before any request, which could otherwise find a schema gone, or register one that is then undone.
      restored_ = restore_schemas(data_dir_->load(), schemas, loaded_.engine->schemas());
      log::info("{} schemas are back from {}", restored_.size(), config_.data_dir.string());
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    service_.set_backend(std::make_shared<api::Backend>(
        api::Backend{loaded_.engine.get(), loaded_.metrics.get(), name, loaded_.chat_template,
                     std::chrono::duration_cast<std::chrono::seconds>(now).count()}));
  }

  // On a thread of its own, so that signals are answered meanwhile. A schema that cannot be had is a fault of the
  // configuration, and ends the server as others do.
  void warm_up(const std::vector<SchemaFile>& schemas) {
    const std::size_t all = restored_.size() + schemas.size();
    const auto tell = [&](std::size_t ready) {
      if (config_.warm) {
        service_.set_waiting_for("schemas are being encoded: " + std::to_string(ready) + " of " + std::to_string(all));
      }
    };
    for (std::size_t i = 0; i < restored_.size(); ++i) {
      await_restored(restored_[i]);
      tell(i + 1);
    }
    const Status status = register_schemas(schemas, loaded_.engine->schemas(),
                                           [&](std::size_t ready) { tell(restored_.size() + ready); });
    if (!status) {
      if (status.error().code != ErrorCode::kDraining) {
        log::error("{}", status.error().message);
        failed_ = true;
        signals_.request();
      }
      return;
    }
    if (config_.warm) {
      service_.set_waiting_for("");
      log_ready();
    }
  }

  // One that fails ends nothing, unlike a file of --schemas: no operator has asked for it at this start.
  void await_restored(const std::string& name) {
    engine::SchemaRegistry& registry = loaded_.engine->schemas();
    registry.wait_until_encoded(name);
    const Result<engine::SchemaStatus> status = registry.status(name);  // or it has been deleted meanwhile
    if (status.ok() && status->failure && status->failure->code != ErrorCode::kDraining) {
      log::error("schema {}: kept in the data directory, but cannot be encoded: {}", name, status->failure->message);
    }
  }

  void log_ready() const {
    log::info("ready in {:.1f} s", std::chrono::duration<double>(Clock::now() - start_).count());
  }

  // On the signals' thread: from this moment on there is no new work.
  void begin_shutdown() {
    service_.start_draining();
    main_server_->close_after_responses();
  }

  void drain() {
    if (loaded_.engine->drain(config_.drain_timeout)) {
      log::info("all requests have ended");
    } else {
      log::warn("the drain timeout has passed; the requests that were left have been ended");
    }
  }

  void stop_serving() {
    main_server_->stop(kLastWrites);
    if (operations_server_) {
      operations_server_->stop(std::chrono::milliseconds(500));
    }
    log::info("stopped");
  }

  const Clock::time_point start_ = Clock::now();
  const Config& config_;
  ShutdownSignals& signals_;
  const std::optional<api::ApiKeys> keys_;
  std::optional<TlsContext> tls_;
  api::Service service_;
  const api::Router router_;
  const api::Router operations_router_;
  ConnectionWatcher watcher_;
  std::shared_ptr<SchemaDirectory> data_dir_;  // null: none
  std::vector<std::string> restored_;          // names of schemas that came back from it
  Loaded loaded_;                              // outlives the servers, whose threads use it
  std::unique_ptr<HttpServer> main_server_;
  std::unique_ptr<HttpServer> operations_server_;
  std::atomic<bool> failed_{false};
};

}  // namespace

int run(const Config& config, ShutdownSignals& signals) {
  App app(config, signals);
  return app.run();
}

}  // namespace promptcached::server
