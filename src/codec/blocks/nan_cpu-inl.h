// NaN in vectors of f32: detection, and the canonical NaN that is stored.
#if defined(TUCKFOLD_CODEC_NAN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_NAN_INL_H
#undef TUCKFOLD_CODEC_NAN_INL_H
#else
#define TUCKFOLD_CODEC_NAN_INL_H
#endif

#include <hwy/highway.h>

#include "base/half.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As canonical() of base/half.h.
template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> value) {
  return hn::IfThenElse(hn::Eq(value, value), value, hn::Set(d, float_of(kNanBits)));
}

#if HWY_ARCH_X86 && HWY_CAP_GE256
// Raises the flag that NanFlag reads if a value is NaN, by a signaling comparison. Operations that
// make a NaN raise it themselves; those that only receive one do not.
//
// Comparisons write a token that is never used. They also seem to read it, so that the compiler
// keeps them all. A volatile asm would do the same, but compilers move nothing past it, and loads
// would come too late.
class NanWatch {
 public:
  HWY_INLINE NanWatch() = default;
  NanWatch(const NanWatch&) = delete;
  NanWatch& operator=(const NanWatch&) = delete;

#if HWY_TARGET <= HWY_AVX3
  template <class V>
  HWY_INLINE void look_at(V values) {
    asm("vcmpps $1, %1, %1, %0" : "+k"(token_) : "v"(values.raw));
  }
  HWY_INLINE ~NanWatch() { asm volatile("" ::"k"(token_)); }

 private:
  __mmask16 token_ = 0;
#else
  template <class V>
  HWY_INLINE void look_at(V values) {
    asm("vcmpps $1, %1, %1, %0" : "+x"(token_) : "x"(values.raw));
  }
  HWY_INLINE ~NanWatch() { asm volatile("" ::"x"(token_)); }

 private:
  __m256 token_ = _mm256_setzero_ps();
#endif
};
#endif

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
