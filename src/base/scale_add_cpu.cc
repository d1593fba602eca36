#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/scale_add_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/scale_add.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void scale_add_target(const float* in, std::int64_t count, float scale, float add,
                               float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, scale), more = hn::Set(d, add);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, in + i), by), more), d, out + i);
  }
  for (; i < count; ++i) {
    const float product = in[i] * scale;
    out[i] = product + add;
  }
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold {

HWY_EXPORT(scale_add_target);

void scale_add(const float* in, std::int64_t count, float scale, float add, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(scale_add_target)(in, count, scale, add, out);
}

}  // namespace tuckfold
#endif  // HWY_ONCE
