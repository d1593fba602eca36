// Arithmetic as IEEE 754 defines it, for as long as the object lives: round to nearest, subnormals
// kept. Frameworks switch subnormals off per thread; packed bytes must not depend on that.
#pragma once

#include <cfenv>

namespace tuckfold {

class FpEnv {
 public:
  FpEnv() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FpEnv() { std::fesetenv(&saved_); }
  FpEnv(const FpEnv&) = delete;
  FpEnv& operator=(const FpEnv&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace tuckfold
