#include "api/wire/fidelity.h"

#include <cstdint>
#include <limits>
#include <string>

namespace promptcached::api {

// Some are to come, and known by name, so that a client learns it.
Fidelity read_fidelity(ObjectReader& in) {
  const std::string fidelity = in.text("fidelity").value_or("modular");
  const bool has_k = in.integer("k", 0, std::numeric_limits<std::int32_t>::max()).has_value();
  if (fidelity == "first_k" || fidelity == "blend") {
    in.refuse("fidelity", "'" + fidelity + "' is not supported yet; use 'modular' or 'exact'");
  } else if (fidelity != "modular" && fidelity != "exact") {
    in.refuse("fidelity", "must be 'modular' or 'exact'");
  } else if (has_k) {
    in.refuse("k", "applies to fidelity 'first_k' alone, which is not supported yet");
  }
  return fidelity == "exact" ? Fidelity::kExact : Fidelity::kModular;
}

}  // namespace promptcached::api
