// stream_lines: the copy loop of stream_copy, for kernels of the same target to inline.
#if defined(TUCKFOLD_BASE_STREAM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_BASE_STREAM_INL_H
#undef TUCKFOLD_BASE_STREAM_INL_H
#else
#define TUCKFOLD_BASE_STREAM_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {

// Partial cache lines at either end are stored as usual, whole ones with non-temporal stores. Input
// in memory is prefetched kAhead bytes early; input in cache needs 0.
template <std::size_t kAhead = 0>
HWY_ATTR void stream_lines(char* to, const char* from, std::size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::size_t kLine = 64;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  const hn::CappedTag<std::uint8_t, kLine> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = bytes / kLine * kLine;
  for (std::size_t i = 0; i < whole; i += kLine) {
    if constexpr (kAhead > 0) __builtin_prefetch(from + i + kAhead, 0, 0);
    for (std::size_t j = 0; j < kLine; j += lanes) {
      const auto v = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from + i + j));
      hn::Stream(v, d, reinterpret_cast<std::uint8_t*>(to + i + j));
    }
  }
  std::memcpy(to + whole, from + whole, bytes - whole);
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
