// promptcached: an LLM inference server that keeps the attention states of prompt modules.

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/model/host_memory.h"
#include "server/app.h"
#include "server/config.h"
#include "server/dry_run.h"
#include "server/shutdown.h"

int main(int argc, char** argv) {
  using namespace promptcached;
  try {
    const Result<server::Command> command =
        server::read_command(std::vector<std::string>(argv + 1, argv + argc), server::process_environment());
    if (!command) {
      std::fprintf(stderr, "promptcached: %s\n", command.error().message.c_str());
      return 1;
    }
    if (command->print) {
      std::fputs(command->print->c_str(), stdout);
      return 0;
    }
    log::configure(command->config.log);
    if (command->config.dry_run) {
      std::fputs(server::dry_run(command->config, model::free_host_bytes()).c_str(), stdout);
      return 0;
    }
    server::ShutdownSignals signals;  // before any other thread
    return server::run(command->config, signals);
  } catch (const std::exception& fault) {
    if (log::enabled(log::Level::kError)) {
      log::error("{}", fault.what());
    } else {
      std::fprintf(stderr, "promptcached: %s\n", fault.what());
    }
    return 1;
  }
}
