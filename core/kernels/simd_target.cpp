#include "core/kernels/simd_target.h"

#include <cstdlib>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd_target.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {
const char* target_name() { return hwy::TargetName(HWY_TARGET); }
}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace promptcached::kernels {
namespace {

HWY_EXPORT(target_name);

// A bit for each set; the better, the lower.
std::int64_t all_targets() {
  static const std::int64_t kHere = hwy::SupportedTargets() & HWY_TARGETS;  // before anything is limited
  return kHere;
}

// Before main(), so that no loop has been chosen yet.
const bool kLimited = [] {
  const char* name = std::getenv("PROMPTCACHED_SIMD");
  return name != nullptr && limit_simd_target(name);
}();

}  // namespace

std::string simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (std::int64_t left = all_targets(); left != 0; left &= left - 1) {
    names.insert(names.begin(), hwy::TargetName(left & -left));
  }
  return names;
}

bool limit_simd_target(const std::string& name) {
  for (std::int64_t left = all_targets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    if (name == hwy::TargetName(target)) {
      hwy::SetSupportedTargetsForTest(all_targets() & ~(target - 1));
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      return true;
    }
  }
  return false;
}

}  // namespace promptcached::kernels
#endif
