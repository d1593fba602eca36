// Arithmetic as IEEE 754 defines it, for as long as the object lives: round to nearest, subnormals
// kept. Frameworks switch subnormals off per thread; packed bytes must not depend on that.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace tuckfold {

class FpEnv {
 public:
  FpEnv(const FpEnv&) = delete;
  FpEnv& operator=(const FpEnv&) = delete;

#if defined(__x86_64__)
  // Sets only the register of float and double: the functions of <cfenv> also save the state of
  // long double, which takes longer than packing a small block.
  FpEnv() noexcept : saved_(_mm_getcsr()) {
    constexpr unsigned kDefault = 0x1f80, kRaised = 0x3f;
    if ((saved_ & ~kRaised) != kDefault) _mm_setcsr(kDefault);
  }
  ~FpEnv() {
    if (_mm_getcsr() != saved_) _mm_setcsr(saved_);
  }

 private:
  unsigned saved_;
#else
  FpEnv() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FpEnv() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

// Whether this thread made a NaN, or compared one with an ordering, since the object was made: IEEE
// 754's flag `invalid`.
class NanFlag {
 public:
#if defined(__x86_64__)
  NanFlag() noexcept {
    if (raised()) _mm_setcsr(_mm_getcsr() & ~kInvalid);
  }
  bool raised() const noexcept { return (_mm_getcsr() & kInvalid) != 0; }

 private:
  static constexpr unsigned kInvalid = 0x01;
#else
  NanFlag() noexcept { std::feclearexcept(FE_INVALID); }
  bool raised() const noexcept { return std::fetestexcept(FE_INVALID) != 0; }
#endif
};

}  // namespace tuckfold
