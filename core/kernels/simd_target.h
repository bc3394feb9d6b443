// Which of the processor's vector instructions the loops of this room use.
#pragma once

#include <string>
#include <vector>

namespace promptcached::kernels {

// The name of the instruction set in use, e.g. "AVX2". Each loop is compiled for several and takes the best that this
// processor has, unless PROMPTCACHED_SIMD in the environment names a lower one: for tests, and to tell a fault of one
// set from others'.
std::string simd_target();

// All sets that this processor has and the loops are compiled for, the best last.
std::vector<std::string> simd_targets();

// The same at run time, for tests: sets better than `name` are not used from now on. False when this processor has no
// such set.
bool limit_simd_target(const std::string& name);

}  // namespace promptcached::kernels
