#include "server/config.h"

#include <unistd.h>

#include <toml++/toml.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/nearest_name.h"
#include "server/option_table.h"
#include "server/version.h"

namespace promptcached::server {
namespace {

constexpr std::string_view kPrefix = "PROMPTCACHED_";

Error bad_value(const std::string& where, const std::string& text, const std::string& wanted) {
  return make_error(ErrorCode::kInvalidField, where + " must be " + wanted + ", not '" + text + "'");
}

Status set(Config& config, const Option& option, const std::string& text, const std::string& where) {
  if (const auto wanted = option.set(config, text)) {
    return bad_value(where, text, *wanted);
  }
  return {};
}

// What the command line says, by option name.
struct Flags {
  std::optional<std::string> print;
  std::optional<std::string> config_file;
  std::map<std::string, std::string> values;
};

Error unknown_argument(const std::string& argument) {
  std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known = {"--help", "--version", "--config"};
  for (const Option& option : option_table()) {
    known.push_back("--" + option.name);
  }
  return make_error(ErrorCode::kUnknownField,
                    "unknown argument '" + argument + "'" + did_you_mean(name, known) + "; see --help");
}

std::string help_text(const Option& option) {
  return option.default_text.empty() ? option.help : option.help + " [" + option.default_text + "]";
}

// Where CLI11 puts what it reads.
struct ReadFlags {
  std::string config_file;
  std::map<std::string, std::string> texts;
  std::map<std::string, bool> switches;
};

void describe_options(CLI::App& app, ReadFlags& read) {
  app.set_help_flag("-h,--help", "Show this help and exit");
  app.set_version_flag("--version", std::string("promptcached ") + kVersion, "Show the version and exit");
  app.get_formatter()->column_width(34);
  app.allow_extras();  // refused below, with the nearest known name
  app.add_option("--config", read.config_file, "A TOML file with options")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("FILE");
  for (const Option& option : option_table()) {
    const std::string flag = "--" + option.name;
    if (option.value_name.empty()) {
      app.add_flag(flag, read.switches[option.name], option.help)->group(option.group);
    } else {
      app.add_option(flag, read.texts[option.name], help_text(option))
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)  // so that a script's flag can be overruled
          ->type_name(option.value_name)
          ->group(option.group);
    }
  }
}

// What was given, as opposed to left at CLI11's defaults.
Flags given_flags(const CLI::App& app, const ReadFlags& read) {
  Flags flags;
  if (app.count("--config") > 0) {
    flags.config_file = read.config_file;
  }
  for (const auto& [name, text] : read.texts) {
    if (app.count("--" + name) > 0) {
      flags.values[name] = text;
    }
  }
  for (const auto& [name, on] : read.switches) {
    if (app.count("--" + name) > 0) {
      flags.values[name] = on ? "true" : "false";
    }
  }
  return flags;
}

Result<Flags> parse_flags(const std::vector<std::string>& arguments) {
  CLI::App app(
      "promptcached: an LLM inference server that keeps the attention states of prompt modules.\n"
      "Every option can also stand in the file of --config (model = \"…\") and in the environment\n"
      "(PROMPTCACHED_MODEL); flags win over the environment, the environment over the file.",
      "promptcached");
  ReadFlags read;
  describe_options(app, read);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::Success& asked) {
    std::ostringstream out;
    app.exit(asked, out, out);
    Flags flags;
    flags.print = out.str();
    return flags;
  } catch (const CLI::ParseError& error) {
    return make_error(ErrorCode::kInvalidField, std::string(error.what()) + "; see --help");
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    return unknown_argument(extras.front());
  }
  return given_flags(app, read);
}

// The text one would write for the option on the command line; nullopt for lists and tables.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* number = node.as_integer()) {
    return std::to_string(number->get());
  }
  if (const auto* flag = node.as_boolean()) {
    return flag->get() ? "true" : "false";
  }
  return std::nullopt;
}

Status apply_file(Config& config, const std::string& file) {
  try {
    const toml::table table = toml::parse_file(file);
    std::vector<std::string> known;
    for (const Option& option : option_table()) {
      known.push_back(option.name);
    }
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      std::string where = file;
      where.append(":").append(std::to_string(node.source().begin.line)).append(": ").append(name);
      const Option* option = find_option(name);
      if (option == nullptr) {
        return make_error(ErrorCode::kUnknownField, where + " is not an option" + did_you_mean(name, known));
      }
      const auto text = text_of(node);
      if (!text) {
        return make_error(ErrorCode::kInvalidField, where + " must be a string, an integer, true or false");
      }
      if (Status status = set(config, *option, *text, where); !status) {
        return status;
      }
    }
    return {};
  } catch (const toml::parse_error& error) {
    return make_error(ErrorCode::kInvalidField,
                      file + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description()));
  }
}

// Kubernetes describes every Service of a namespace in its pods' environment; one named "promptcached" would otherwise
// keep the server from starting.
bool is_kubernetes_variable(std::string_view name) {
  return name.starts_with("PROMPTCACHED_SERVICE_") || name == "PROMPTCACHED_PORT" ||
         name.starts_with("PROMPTCACHED_PORT_");
}

Status apply_environment(Config& config, const std::map<std::string, std::string>& environment) {
  std::map<std::string, const Option*> options;
  std::vector<std::string> known = {"PROMPTCACHED_CONFIG"};
  for (const Option& option : option_table()) {
    options[environment_name(option)] = &option;
    known.push_back(environment_name(option));
  }
  for (const auto& [name, text] : environment) {
    if (!name.starts_with(kPrefix) || name == "PROMPTCACHED_CONFIG" || is_kubernetes_variable(name)) {
      continue;
    }
    const auto option = options.find(name);
    if (option == options.end()) {
      return make_error(ErrorCode::kUnknownField,
                        "the environment variable " + name + " is not an option" + did_you_mean(name, known));
    }
    if (Status status = set(config, *option->second, text, name); !status) {
      return status;
    }
  }
  return {};
}

Status check(const Config& config) {
  const auto missing = [](std::string message) { return make_error(ErrorCode::kInvalidField, std::move(message)); };
  if (config.model.path.empty()) {
    return missing("--model is required: a Hugging Face model directory; see --help");
  }
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return missing("--tls-cert and --tls-key go together");
  }
  if (config.warm && config.schemas.empty() && config.data_dir.empty()) {
    return missing("--warm needs --schemas or --data-dir");
  }
  return {};
}

}  // namespace

Result<Command> read_command(const std::vector<std::string>& arguments,
                             const std::map<std::string, std::string>& environment) {
  const Result<Flags> flags = parse_flags(arguments);
  if (!flags) {
    return flags.error();
  }
  Command command;
  command.print = flags->print;
  if (command.print) {
    return command;
  }
  std::optional<std::string> file = flags->config_file;
  if (const auto named = environment.find("PROMPTCACHED_CONFIG"); !file && named != environment.end()) {
    file = named->second;
  }
  if (file) {
    if (Status status = apply_file(command.config, *file); !status) {
      return status.error();
    }
  }
  if (Status status = apply_environment(command.config, environment); !status) {
    return status.error();
  }
  for (const auto& [name, text] : flags->values) {
    if (Status status = set(command.config, *find_option(name), text, "--" + name); !status) {
      return status.error();
    }
  }
  if (Status status = check(command.config); !status) {
    return status.error();
  }
  return command;
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

}  // namespace promptcached::server
