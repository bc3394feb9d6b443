// The host's memory, for those who know nothing of torch.
#pragma once

#include <cstddef>

namespace promptcached::model {

// What is free for KV on the CPU, now: what a model loaded there calls free_memory_bytes().
std::size_t free_host_bytes();

}  // namespace promptcached::model
