// App: the server from start to end.
#pragma once

#include "server/config.h"
#include "server/shutdown.h"

namespace promptcached::server {

// Opens the port, loads the model, serves until a signal, drains. Returns the process's exit status. Throws
// std::runtime_error with one line for whoever starts the server when it cannot start.
int run(const Config& config, ShutdownSignals& signals);

}  // namespace promptcached::server
