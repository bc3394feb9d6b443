// Vectors of fp32, loops over them and the exponential, for the instruction set in HWY_TARGET.
#if defined(PROMPTCACHED_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PROMPTCACHED_KERNELS_VECTORS_INL_H_
#undef PROMPTCACHED_KERNELS_VECTORS_INL_H_
#else
#define PROMPTCACHED_KERNELS_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Up to sixteen lanes: what is known at compile time on every processor we build for.
using Tag = HWY_CAPPED(float, 16);
using Vector = hn::Vec<Tag>;
inline constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

// step(tag, i) for whole vectors of the numbers 0 to count - 1, then for single ones.
template <typename Step>
HWY_INLINE void for_each_vector(std::int64_t count, const Step& step) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    step(Tag(), i);
  }
  for (; i < count; ++i) {
    step(hn::CappedTag<float, 1>(), i);
  }
}

// 2^x to about 1.6e-7, for x <= 0; 2^-126 for all that is less. Exactly 1 at 0.
template <class D>
HWY_INLINE hn::Vec<D> exp2_of(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  x = hn::Max(x, hn::Set(d, -126.0F));
  // Added to 1.5 * 2^23, a number loses its fraction: the nearest whole number stands in the lowest bits.
  const auto shifted = hn::Add(x, hn::Set(d, 12582912.0F));
  const auto r = hn::Sub(x, hn::Sub(shifted, hn::Set(d, 12582912.0F)));
  // The polynomial of least relative error within [-0.5, 0.5].
  auto y = hn::MulAdd(hn::Set(d, 0.001326472731F), r, hn::Set(d, 0.009671512991F));
  y = hn::MulAdd(y, r, hn::Set(d, 0.05550733581F));
  y = hn::MulAdd(y, r, hn::Set(d, 0.2402224243F));
  y = hn::MulAdd(y, r, hn::Set(d, 0.6931470037F));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, y), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PROMPTCACHED_KERNELS_VECTORS_INL_H_
