#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/stream_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/stream_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {

void stream_copy_target(void* to, const void* from, std::size_t bytes) {
  stream_lines(static_cast<char*>(to), static_cast<const char*>(from), bytes);
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/cache_control.h>

#include "base/stream.h"
#include "base/target.h"

namespace tuckfold {

HWY_EXPORT(stream_copy_target);

void stream_copy(void* to, const void* from, std::size_t bytes) {
  settle_cpu_target();
  HWY_DYNAMIC_DISPATCH(stream_copy_target)(to, from, bytes);
}

void stream_fence() { hwy::FlushStream(); }

}  // namespace tuckfold
#endif  // HWY_ONCE
