// Batches of unchanged elements, read from a tensor or written to one; for kernels of the same
// target to inline.
#if defined(TUCKFOLD_CODEC_BATCH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BATCH_INL_H
#undef TUCKFOLD_CODEC_BATCH_INL_H
#else
#define TUCKFOLD_CODEC_BATCH_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/stream_cpu-inl.h"
#include "base/strided.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {

constexpr std::int64_t kBatchElems =
    1024;  // elements that stay in the first cache; a multiple of 64
constexpr std::size_t kAheadBytes = 2048;  // how early to ask for what will be read, as in a copy

// Elements [at, at + count): a pointer to them if they are contiguous, in the tensor or in the
// thread's panel, else a gathered copy.
template <class T>
const T* take(const FlatReader& in, std::int64_t at, std::int64_t count, T* gathered) {
  const void* dense = in.dense(at, count);
  if (dense == nullptr) dense = in.in_thread_panel(at, count);
  if (dense != nullptr) return static_cast<const T*>(dense);
  in.gather_bytes(at, count, gathered);
  return gathered;
}

// Writes a batch from cache to the output; with non-temporal stores if `stream`.
template <class T>
void put(const FlatWriter& out, std::int64_t at, std::int64_t count, const T* values, bool stream) {
  void* dense = out.dense(at, count);
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (dense == nullptr) {
    out.scatter_bytes(at, count, values);
  } else if (stream) {
    stream_lines(static_cast<char*>(dense), reinterpret_cast<const char*>(values), bytes);
  } else {
    std::memcpy(dense, values, bytes);
  }
}

// Where to make a batch for put(): in the thread's panel if it has room for all of it side by side,
// else in `buffer`. Nothing past the batch may be written.
template <class T>
T* room_for(const FlatWriter& out, std::int64_t at, std::int64_t count, T* buffer) {
  void* in_panel = out.in_thread_panel(at, count);
  return in_panel == nullptr ? buffer : static_cast<T*>(in_panel);
}

// Writes a batch from room_for() to the output; with non-temporal stores if `stream`.
template <class T>
void put(const FlatWriter& out, std::int64_t at, std::int64_t count, const T* values,
         const T* buffer, bool stream) {
  if (values == buffer) put(out, at, count, values, stream);
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
