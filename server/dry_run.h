// --dry-run: what a model will take, told from its config.json alone.
#pragma once

#include <cstddef>
#include <string>

#include "server/config.h"

namespace promptcached::server {

// The page to print: the model's shape and parameters, bytes of weights and of a token's KV, how many module tokens
// each tier holds, and the arithmetic of a first token. Needs no weights, no tokenizer and no device.
// `free_host_bytes`: what the default KV budget on the CPU is taken from. Throws std::runtime_error with one line when
// config.json is missing or not understood.
std::string dry_run(const Config& config, std::size_t free_host_bytes);

}  // namespace promptcached::server
