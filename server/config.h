// Configuration: flags, environment, file. This fills each component's own Options struct, which holds its defaults.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/service.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/engine/engine.h"
#include "core/model/causal_lm.h"
#include "server/http_server.h"
#include "server/listener.h"

namespace promptcached::server {

struct Config {
  bool dry_run = false;           // tell what the model takes, and end
  std::string served_model_name;  // empty: the model directory's name
  Address listen;
  std::optional<Address> ops_listen;
  std::filesystem::path schemas;   // empty: none
  std::filesystem::path data_dir;  // empty: schemas live in memory alone
  bool warm = false;
  std::filesystem::path api_keys;  // empty: nobody needs a key
  std::filesystem::path tls_cert;  // empty: in the clear
  std::filesystem::path tls_key;
  std::chrono::milliseconds drain_timeout{30'000};

  model::LoadOptions model;
  engine::EngineOptions engine;
  HttpServer::Options http;
  api::ServiceOptions service;
  log::Options log;
};

// What the command line asks for.
struct Command {
  std::optional<std::string> print;  // --help, --version: print this and end
  Config config;
};

// Flags win over environment, environment over the file. `environment`: all variables; those that begin with
// PROMPTCACHED_ must be known ones. Errors (kInvalidField, kUnknownField) are one line, naming where the value came
// from and the nearest known name.
Result<Command> read_command(const std::vector<std::string>& arguments,
                             const std::map<std::string, std::string>& environment);

// The process's own.
std::map<std::string, std::string> process_environment();

}  // namespace promptcached::server
