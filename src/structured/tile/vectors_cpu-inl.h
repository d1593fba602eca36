// Vectors that divide a tile's lanes, and many sums at once.
#if defined(TUCKFOLD_STRUCTURED_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_STRUCTURED_VECTORS_INL_H
#undef TUCKFOLD_STRUCTURED_VECTORS_INL_H
#else
#define TUCKFOLD_STRUCTURED_VECTORS_INL_H
#endif

#include <hwy/highway.h>

#include "structured/tile/tile.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::structured::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::CappedTag<T, kLanes>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

template <class T>
HWY_INLINE constexpr std::int64_t width() {
  return static_cast<std::int64_t>(hn::MaxLanes(Tag<T>()));
}

template <class T>
HWY_INLINE T sum_of(Vec<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}

// Sums of neighbours: the lower half those of a, the upper half those of b.
template <class T>
HWY_INLINE Vec<T> pair_sums(Vec<T> a, Vec<T> b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Add(a, b);  // of one lane: never called
#else
  const Tag<T> d;
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

// out[i] += the sum of all lanes of v[i], for as many vectors as a vector has lanes.
template <class T, int kCount>
HWY_INLINE void add_sums_of_width(Vec<T>* v, T* out) {
  const Tag<T> d;
  if constexpr (kCount == 1) {
    hn::StoreU(hn::Add(v[0], hn::LoadU(d, out)), d, out);
  } else {
    for (int i = 0; i < kCount / 2; ++i) v[i] = pair_sums<T>(v[2 * i], v[2 * i + 1]);
    add_sums_of_width<T, kCount / 2>(v, out);
  }
}

// The same for any multiple of the width, or for fewer.
template <class T, int kCount>
HWY_INLINE void add_sums(Vec<T>* v, T* out) {
  constexpr int kWidth = static_cast<int>(width<T>());
  if constexpr (kCount >= kWidth) {
    for (int i = 0; i < kCount; i += kWidth) add_sums_of_width<T, kWidth>(v + i, out + i);
  } else {
    for (int i = 0; i < kCount; ++i) out[i] += sum_of<T>(v[i]);
  }
}

}  // namespace tuckfold::structured::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
