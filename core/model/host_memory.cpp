#include "core/model/host_memory.h"

#include "core/model/kv_memory.h"

namespace promptcached::model {

std::size_t free_host_bytes() { return KvMemory(at::kCPU).free_bytes(); }

}  // namespace promptcached::model
