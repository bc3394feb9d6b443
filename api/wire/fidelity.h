// `fidelity`: how close to full attention over the whole text an answer is to be.
#pragma once

#include "api/json_reader.h"

namespace promptcached::api {

enum class Fidelity {
  kModular,  // modules are read as they were encoded, each at its place
  kExact,    // full causal attention over the text they make, as if it had come without modules
};

// Reads `fidelity`, and `k`, which goes with one not supported yet.
Fidelity read_fidelity(ObjectReader& in);

}  // namespace promptcached::api
