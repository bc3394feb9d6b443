#include "core/kernels/simd_target.h"

#include "tests/catch.h"

namespace promptcached::kernels {

TEST_CASE("a lower instruction set can be asked for, an unknown one cannot", "[kernels]") {
  const std::string best = simd_target();
  CHECK_FALSE(limit_simd_target("no such set"));
  CHECK(simd_target() == best);
  CHECK(limit_simd_target(best));
  CHECK(simd_target() == best);
}

}  // namespace promptcached::kernels
