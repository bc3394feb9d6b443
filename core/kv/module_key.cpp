#include "core/kv/module_key.h"

#include "core/base/sha256.h"

namespace promptcached::kv {

std::string ModuleKey::hex() const { return to_hex(bytes); }

}  // namespace promptcached::kv
