// Loads and stores of a thread's block of PlaneBlocks. All threads of a CTA call these together.
//
//   float x[64];
//   load_planes(blocks, {first block, end}, spot, shared, x);
//   …
//   store_planes(blocks, {first block, end}, spot, shared, x);
#pragma once

#include <cstdint>
#include <cstring>

#include "base/cuda/async.cuh"
#include "base/cuda/bulk.cuh"
#include "codec/blocks/block_words_cuda.cuh"
#include "codec/blocks/planes_cuda.cuh"
#include "codec/blocks/vectors_cuda.cuh"

namespace tuckfold::cuda {

// The blocks of a CTA that are staged, with the rest of the rows of blocks that they are in. Where
// values are stored they must be whole rows.
struct StagedBlocks {
  std::uint32_t begin, end;
};

namespace detail {

// ---- rows, or columns, of eight values at multiples of 16 bytes ---------------------------------

// What two neighbouring lanes do together to store their two blocks of f32, as PairPlace.
struct SpotPair {
  bool odd;
  bool even_exists, odd_exists;
  int even_count, odd_count;  // vectors that exist
  std::int64_t even_at, odd_at;

  __device__ SpotPair(const BlockSpot& spot, int count) {
    const auto other = [](auto value) { return __shfl_xor_sync(kAllLanes, value, 1); };
    const std::int64_t at = other(spot.offset);
    const int counts = other(count), exists = other(spot.exists ? 1 : 0);
    odd = threadIdx.x % 2 != 0;
    even_exists = odd ? exists != 0 : spot.exists;
    odd_exists = odd ? spot.exists : exists != 0;
    even_count = odd ? counts : count;
    odd_count = odd ? count : counts;
    even_at = (odd ? at : spot.offset) + (odd ? 4 : 0);
    odd_at = (odd ? spot.offset : at) + (odd ? 4 : 0);
  }
};

template <class T, bool kColumns>
__device__ TUCKFOLD_INLINE void load_vectors(const PlaneBlocks& b, const BlockSpot& spot,
                                             float* x) {
  constexpr int kEach = kVector<T>;
  const T* data = static_cast<const T*>(b.data) + spot.offset;
  const int count = kColumns ? spot.cols : spot.rows;
  const int step = kColumns ? b.col_step : b.row_step;
#pragma unroll
  for (int v = 0; v < 8; ++v) {
    const T* from = data + static_cast<std::int64_t>(at_most(v, count - 1)) * step;
#pragma unroll
    for (int half = 0; half < 8; half += kEach) {
      float some[kEach];
      floats_of<T>(*reinterpret_cast<const uint4*>(from + half), some);
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[in_block<kColumns>(v, half + i)] = some[i];
    }
  }
}

template <class T, bool kColumns>
__device__ TUCKFOLD_INLINE void store_vectors(const PlaneBlocks& b, const BlockSpot& spot,
                                              const float* x, bool tame) {
  T* data = static_cast<T*>(b.data);
  const int count = kColumns ? spot.cols : spot.rows;
  const std::int64_t step = kColumns ? b.col_step : b.row_step;
  if constexpr (sizeof(T) == 4) {
    const SpotPair pair(spot, count);
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      float kept[4], given[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = x[in_block<kColumns>(v, i)], right = x[in_block<kColumns>(v, 4 + i)];
        kept[i] = pair.odd ? right : left;
        given[i] = __shfl_xor_sync(kAllLanes, pair.odd ? left : right, 1);
      }
      const float4 own = make_float4(kept[0], kept[1], kept[2], kept[3]);
      const float4 theirs = make_float4(given[0], given[1], given[2], given[3]);
      if (pair.even_exists && v < pair.even_count) {
        store_away(reinterpret_cast<float4*>(data + pair.even_at + v * step),
                   pair.odd ? theirs : own);
      }
      if (pair.odd_exists && v < pair.odd_count) {
        store_away(reinterpret_cast<float4*>(data + pair.odd_at + v * step),
                   pair.odd ? own : theirs);
      }
    }
  } else {
    const BlockWords<T, kColumns> block(b.dtype, x, tame);
    if (!spot.exists) return;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      if (v < count) {
        store_away(reinterpret_cast<uint4*>(data + spot.offset + v * step), block.four(4 * v));
      }
    }
  }
}

// ---- value by value -----------------------------------------------------------------------------

// A pointer of which the compiler must not know how it was computed: it would add all that leads to
// a value's address for each value again, in four instructions instead of one. Nor does it know then
// that this is one to global memory, so the two below say it.
template <class T>
__device__ TUCKFOLD_INLINE T* settled(T* pointer) {
#ifdef __CUDA_ARCH__
  asm("" : "+l"(pointer));
#endif
  return pointer;
}
template <class T>
__device__ TUCKFOLD_INLINE float load_value(const T* from) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) {
    float value;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
  } else {
    std::uint16_t bits;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(from));
    return half_to_float<T>(bits);
  }
#else
  if constexpr (sizeof(T) == 4)
    return *from;
  else
    return half_to_float<T>(from->bits);
#endif
}
template <class T>
__device__ TUCKFOLD_INLINE void store_value(T* to, T value) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
  } else {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(value.bits) : "memory");
  }
#else
  *to = value;
#endif
}

template <class T>
__device__ TUCKFOLD_INLINE void load_apart(const PlaneBlocks& b, const BlockSpot& spot, float* x) {
  const T* data = static_cast<const T*>(b.data) + spot.offset;
  int cols[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) cols[c] = at_most(c, spot.cols - 1) * b.col_step;
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const T* row =
        settled(data + static_cast<std::int64_t>(at_most(r, spot.rows - 1)) * b.row_step);
#pragma unroll
    for (int c = 0; c < 8; ++c) x[8 * r + c] = load_value(row + cols[c]);
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void store_apart(const PlaneBlocks& b, const BlockSpot& spot,
                                            const float* x, bool tame) {
  const BlockWords<T> block(b.dtype, x, tame);
  if (!spot.exists) return;
  T* data = static_cast<T*>(b.data) + spot.offset;
  const auto store = [&](int rows, int cols) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      T* row = settled(data + static_cast<std::int64_t>(r) * b.row_step);
      if (r >= rows) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (c < cols) store_value(row + c * b.col_step, block.element(r, c));
      }
    }
  };
  spot.rows == 8 && spot.cols == 8 ? store(8, 8) : store(spot.rows, spot.cols);
}

// ---- by way of shared memory --------------------------------------------------------------------

// A CTA's rows of a dense tensor, as bytes of memory from the multiple of 16 before the first on.
struct StagedRows {
  unsigned char* memory;
  int lead, total;  // the rows are bytes [lead, total)
  std::int64_t first_elem;
  std::uint32_t first_row;  // of blocks

  __device__ StagedRows(const PlaneBlocks& b, const StagedBlocks& blocks, int size) {
    first_row = b.by_block_cols.quotient(blocks.begin);
    first_elem = b.block_row_begin(first_row);
    const std::int64_t end =
        b.block_row_begin(b.by_block_cols.quotient(blocks.end + b.block_cols - 1));
    auto* first = static_cast<unsigned char*>(b.data) + first_elem * size;
    lead = static_cast<int>(reinterpret_cast<std::uintptr_t>(first) % 16);
    memory = first - lead;
    total = lead + static_cast<int>(end - first_elem) * size;
  }
  // The place of a block's first value in shared memory.
  __device__ int place(const PlaneBlocks& b, const BlockSpot& spot, int size) const {
    const int at = lead + static_cast<int>(spot.offset - first_elem) * size;
    if (b.pad == 0) return at;
    return at + b.pad * static_cast<int>(b.by_block_cols.quotient(spot.block) - first_row);
  }
  // The place of byte `at`, a multiple of 16.
  __device__ int place(const PlaneBlocks& b, int at) const {
    if (b.pad == 0) return at;
    return at + b.pad * static_cast<int>(b.by_sixteens.quotient(static_cast<unsigned>(at) / 16));
  }
};

// Bytes [from, to) of the rows that the copy engine moves: sixteens that the tensor has in part are left
// out, at both ends of a tensor at most.
struct WholeSixteens {
  int from, to;
};

// One element after the other of the sixteen at `at`, of those bytes that lie within [first, last).
template <class T, class Move>
__device__ TUCKFOLD_INLINE void for_each_in_sixteen(int at, int first, int last, Move&& move) {
  for (int i = at; i < at + 16; i += static_cast<int>(sizeof(T))) {
    if (i >= first && i < last) move(i);
  }
}

// All rows of the CTA to shared memory. A barrier must follow.
template <class T>
__device__ TUCKFOLD_INLINE void stage_in(const PlaneBlocks& b, const StagedRows& rows,
                                         unsigned char* shared) {
  const auto* begin = static_cast<const unsigned char*>(b.data);
  const unsigned char* end = begin + b.elems * static_cast<std::int64_t>(sizeof(T));
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const std::int64_t before = begin - rows.memory, after = end - rows.memory;
  const int rounded = (rows.total + 15) / 16 * 16;
  const WholeSixteens whole{.from = before > 0 ? 16 : 0,
                            .to = after < rounded ? static_cast<int>(after) / 16 * 16 : rounded};
  __shared__ BulkSignal signal;
  if (threadIdx.x == 0) signal.init();
  __syncthreads();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) signal.expect(max(whole.to - whole.from, 0));
  if (b.pad == 0) {
    if (thread == 0 && whole.to > whole.from) {
      signal.fetch(shared + whole.from, rows.memory + whole.from, whole.to - whole.from);
      const unsigned char* ahead = rows.memory + whole.from + b.ahead;
      if (b.ahead != 0 && ahead + (whole.to - whole.from) <= end) {
        prefetch_bulk(ahead, whole.to - whole.from);
      }
    }
  } else {  // then all rows of blocks are sixteens
    const int row = static_cast<int>(8 * b.cols * sizeof(T));
    if (thread * row < rows.total) {
      signal.fetch(shared + thread * (row + b.pad), rows.memory + thread * row, row);
    }
  }
  const int partial = thread == 32   ? (whole.from > 0 ? 0 : rows.total)
                      : thread == 64 ? whole.to
                                     : rows.total;
  if (partial < rows.total) {
    for_each_in_sixteen<T>(
        partial, before > 0 ? static_cast<int>(before) : 0, rows.total, [&](int i) {
          *reinterpret_cast<T*>(shared + i) = *reinterpret_cast<const T*>(rows.memory + i);
        });
  }
  signal.wait();
#else
  for (int at = 16 * static_cast<int>(threadIdx.x); at < rows.total;
       at += 16 * static_cast<int>(blockDim.x)) {
    const unsigned char* from = rows.memory + at;
    unsigned char* to = shared + rows.place(b, at);
    if (b.ahead != 0 && at % kLine == 0 && from + b.ahead < end) prefetch(from + b.ahead);
    if (from >= begin && from + 16 <= end) {
      copy_async(to, from);
    } else {
      for (int i = 0; i < 16; i += static_cast<int>(sizeof(T))) {
        if (from + i < begin || from + i >= end) continue;
        *reinterpret_cast<T*>(to + i) = *reinterpret_cast<const T*>(from + i);
      }
    }
  }
  wait_for_copies();
#endif
}

// The same back, after a barrier, before which threads that wrote rows called before_bulk_store().
template <class T>
__device__ TUCKFOLD_INLINE void stage_out(const PlaneBlocks& b, const StagedRows& rows,
                                          const unsigned char* shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const WholeSixteens whole{.from = rows.lead > 0 ? 16 : 0, .to = rows.total / 16 * 16};
  const auto thread = static_cast<int>(threadIdx.x);
  bool stores = false;
  if (b.pad == 0) {
    stores = thread == 0 && whole.to > whole.from;
    if (stores) store_bulk(rows.memory + whole.from, shared + whole.from, whole.to - whole.from);
  } else {
    const int row = static_cast<int>(8 * b.cols * sizeof(T));
    stores = thread * row < rows.total;
    if (stores) store_bulk(rows.memory + thread * row, shared + thread * (row + b.pad), row);
  }
  const int partial = thread == 32                             ? (whole.from > 0 ? 0 : rows.total)
                      : thread == 64 && whole.to >= whole.from ? whole.to
                                                               : rows.total;
  if (partial < rows.total) {
    for_each_in_sixteen<T>(partial, rows.lead, rows.total, [&](int i) {
      *reinterpret_cast<T*>(rows.memory + i) = *reinterpret_cast<const T*>(shared + i);
    });
  }
  if (stores) wait_for_bulk_stores();
#else
  for (int at = 16 * static_cast<int>(threadIdx.x); at < rows.total;
       at += 16 * static_cast<int>(blockDim.x)) {
    const unsigned char* from = shared + rows.place(b, at);
    if (at >= rows.lead && at + 16 <= rows.total) {
      store_away(reinterpret_cast<uint4*>(rows.memory + at), *reinterpret_cast<const uint4*>(from));
    } else {
      for (int i = 0; i < 16; i += static_cast<int>(sizeof(T))) {
        if (at + i < rows.lead || at + i >= rows.total) continue;
        *reinterpret_cast<T*>(rows.memory + at + i) = *reinterpret_cast<const T*>(from + i);
      }
    }
  }
#endif
}

// Words that one access moves.
template <int kAlign>
struct alignas(kAlign) Piece {
  std::uint32_t words[kAlign / 4];
};

// Eight values from an address that is a multiple of kAlign bytes. Of halves at odd places the words
// around them are read.
template <class T, int kAlign>
__device__ TUCKFOLD_INLINE void read_row(const unsigned char* from, float* x) {
  constexpr int kWords = 2 * static_cast<int>(sizeof(T));
  std::uint32_t words[kWords];
  if constexpr (kAlign == 2) {
    // Taken off the pointer, so that the compiler knows it to be one to shared memory still.
    const auto before = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) & 2);
    const auto* around = reinterpret_cast<const std::uint32_t*>(from - before);
    std::uint32_t five[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) five[i] = around[i];
    const std::uint32_t shift = before * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(five[i], five[i + 1], shift);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += kAlign / 4) {
      const auto piece = *reinterpret_cast<const Piece<kAlign>*>(from + 4 * i);
#pragma unroll
      for (int j = 0; j < kAlign / 4; ++j) words[i + j] = piece.words[j];
    }
  }
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    floats_of<T>(make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]),
                 x + i * 4 / static_cast<int>(sizeof(T)));
  }
}

// The first `count` of row r, to such an address.
template <class T, int kAlign>
__device__ TUCKFOLD_INLINE void write_row(unsigned char* to, const BlockWords<T>& block, int r,
                                          int count) {
  if constexpr (kAlign >= 4) {
    // Where rows are so aligned, an edge is, too.
    constexpr int kPiece = kAlign / static_cast<int>(sizeof(T));
#pragma unroll
    for (int i = 0; i < BlockWords<T>::kEach; i += kAlign / 4) {
      Piece<kAlign> piece;
#pragma unroll
      for (int j = 0; j < kAlign / 4; ++j) {
        piece.words[j] = block.words[r * BlockWords<T>::kEach + i + j];
      }
      if (i * 4 / static_cast<int>(sizeof(T)) + kPiece <= count) {
        *reinterpret_cast<Piece<kAlign>*>(to + 4 * i) = piece;
      }
    }
  } else if (count == 8) {
    const std::uint32_t* words = block.words + r * BlockWords<T>::kEach;
    if (reinterpret_cast<std::uintptr_t>(to) % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) reinterpret_cast<std::uint32_t*>(to)[i] = words[i];
    } else {  // a half, three words, a half
      reinterpret_cast<T*>(to)[0] = block.element(r, 0);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        reinterpret_cast<std::uint32_t*>(to + 2)[i] = __funnelshift_r(words[i], words[i + 1], 16);
      }
      reinterpret_cast<T*>(to)[7] = block.element(r, 7);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < count) reinterpret_cast<T*>(to)[i] = block.element(r, i);
    }
  }
}

template <class T, int kAlign>
__device__ TUCKFOLD_INLINE void read_block(const PlaneBlocks& b, const BlockSpot& spot,
                                           const unsigned char* from, float* x) {
  const int row_bytes = static_cast<int>(b.cols * sizeof(T));
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    read_row<T, kAlign>(from + at_most(r, spot.rows - 1) * row_bytes, x + 8 * r);
  }
  const int edge = static_cast<int>((b.cols - 1) % 8 + 1);  // columns of the last block of a row
#pragma unroll
  for (int c = 1; c < 8; ++c) {
    if (c < edge) continue;  // all threads know it
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      x[8 * r + c] = c < spot.cols ? x[8 * r + c] : x[8 * r + c - 1];
    }
  }
}

template <class T, int kAlign>
__device__ TUCKFOLD_INLINE void write_block(const PlaneBlocks& b, const BlockSpot& spot,
                                            unsigned char* to, const BlockWords<T>& block) {
  const int row_bytes = static_cast<int>(b.cols * sizeof(T));
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    if (r < spot.rows) write_row<T, kAlign>(to + r * row_bytes, block, r, spot.cols);
  }
}

// Calls visit with the alignment of rows. Halves at multiples of 16 are Walk::Rows where they can.
template <class T, class Visit>
__device__ TUCKFOLD_INLINE void with_align(const PlaneBlocks& b, Visit&& visit) {
  if constexpr (sizeof(T) == 4) {
    if (b.align == 16) return visit.template operator()<16>();
  }
  if (b.align >= 8) return visit.template operator()<8>();
  if (sizeof(T) == 4 || b.align == 4) return visit.template operator()<4>();
  if constexpr (sizeof(T) == 2) visit.template operator()<2>();
}

template <class T>
__device__ TUCKFOLD_INLINE void load_staged(const PlaneBlocks& b, const StagedBlocks& blocks,
                                            const BlockSpot& spot, unsigned char* shared,
                                            float* x) {
  const StagedRows rows(b, blocks, sizeof(T));
  stage_in<T>(b, rows, shared);
  __syncthreads();
  const unsigned char* from = shared + rows.place(b, spot, sizeof(T));
  with_align<T>(b, [&]<int kAlign>() { read_block<T, kAlign>(b, spot, from, x); });
}

template <class T>
__device__ TUCKFOLD_INLINE void store_staged(const PlaneBlocks& b, const StagedBlocks& blocks,
                                             const BlockSpot& spot, unsigned char* shared,
                                             const float* x, bool tame) {
  const StagedRows rows(b, blocks, sizeof(T));
  const BlockWords<T> block(b.dtype, x, tame);
  if (spot.exists) {
    unsigned char* to = shared + rows.place(b, spot, sizeof(T));
    with_align<T>(b, [&]<int kAlign>() { write_block<T, kAlign>(b, spot, to, block); });
  }
  before_bulk_store();
  __syncthreads();
  stage_out<T>(b, rows, shared);
}

// F16 is loaded as if it were BF16, and converted later.
template <bool kF32, class Visit>
__device__ TUCKFOLD_INLINE void with_plane_element(DType dtype, Visit&& visit) {
  if constexpr (!kF32) {
    if (dtype != DType::F32) return visit(BF16{});
  }
  visit(float{});
}

}  // namespace detail

// ---- whatever the walk --------------------------------------------------------------------------

// A kernel for some walks only needs fewer registers, so that more CTAs fit a multiprocessor.
enum class Walks { Any, Staged, Direct };  // Direct: all but Staged
__host__ __device__ inline constexpr Walks walks_of(bool staged) {
  return staged ? Walks::Staged : Walks::Direct;
}

// `shared` has staged_bytes(); nothing else may be there, and it is read until the next barrier.
// kF32: whether the tensor is known to be of f32. kWalks: how it is walked, as far as is known.
template <bool kF32 = false, Walks kWalks = Walks::Any>
__device__ TUCKFOLD_INLINE void load_planes(const PlaneBlocks& b, const StagedBlocks& blocks,
                                            const BlockSpot& spot, unsigned char* shared,
                                            float* x) {
  detail::with_plane_element<kF32>(b.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (kWalks != Walks::Direct) {
      if (kWalks == Walks::Staged || b.walk == Walk::Staged) {
        return detail::load_staged<T>(b, blocks, spot, shared, x);
      }
    }
    if constexpr (kWalks != Walks::Staged) {
      if (b.walk == Walk::Rows) return detail::load_vectors<T, false>(b, spot, x);
      if (b.walk == Walk::Columns) return detail::load_vectors<T, true>(b, spot, x);
      detail::load_apart<T>(b, spot, x);
    }
  });
  if (!kF32 && b.dtype == DType::F16) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      x[i] = half_to_float<F16>(static_cast<std::uint16_t>(bits_of(x[i]) >> 16));
    }
  }
}

// The same; before it a barrier must have come since `shared` was read. tame: whether values are
// known to be numbers that the dtype holds.
template <bool kF32 = false, Walks kWalks = Walks::Any>
__device__ TUCKFOLD_INLINE void store_planes(const PlaneBlocks& b, const StagedBlocks& blocks,
                                             const BlockSpot& spot, unsigned char* shared,
                                             const float* x, bool tame = false) {
  detail::with_plane_element<kF32>(b.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (kWalks != Walks::Direct) {
      if (kWalks == Walks::Staged || b.walk == Walk::Staged) {
        return detail::store_staged<T>(b, blocks, spot, shared, x, tame);
      }
    }
    if constexpr (kWalks != Walks::Staged) {
      if (b.walk == Walk::Rows) return detail::store_vectors<T, false>(b, spot, x, tame);
      if (b.walk == Walk::Columns) return detail::store_vectors<T, true>(b, spot, x, tame);
      detail::store_apart<T>(b, spot, x, tame);
    }
  });
}

}  // namespace tuckfold::cuda
