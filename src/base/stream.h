// Copies whose destination will not be read soon: whole cache lines go to memory without first
// being read from it.
#pragma once

#include <cstddef>

namespace tuckfold {

// Outputs larger than this are streamed; smaller ones are likely to be read from cache.
inline constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

// memcpy by non-temporal stores. The caller ends a series with stream_fence() before another thread
// reads the result.
void stream_copy(void* to, const void* from, std::size_t bytes);
void stream_fence();

// The same on several threads, with a fence: the plain copy that codecs are measured against. With
// `prefetch` it prefetches its input, which is faster than the hardware's own prefetcher.
void stream_copy(void* to, const void* from, std::size_t bytes, int threads, bool prefetch = false);

}  // namespace tuckfold
