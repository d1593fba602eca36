// Blocks of 8 x 8 values for kernels that give each thread one: 64 floats in registers, whatever
// the tensor's dtype, strides and edges are.
//
//   float x[64];
//   load_block<float>(whole, block, x);      // a dense tensor of whole blocks, the fast way
//   load_block<float>(any, block, x);        // any tensor
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/blocks/block_rows.h"
#include "codec/blocks/vectors_cuda.cuh"

namespace tuckfold::cuda {

// A dense tensor whose planes are whole blocks. Its block rows are contiguous, so planes do not
// matter.
struct WholeBlocks {
  void* data;  // a multiple of 16
  std::int64_t count;
  std::int64_t cols;  // values in a row
  std::uint32_t block_cols;

  static bool suits(const View& view, const Blocks& b) {
    const bool type =
        view.dtype == DType::F32 || view.dtype == DType::F16 || view.dtype == DType::BF16;
    return type && b.block == 8 && view.dense(16) && b.rows % 8 == 0 && b.cols % 8 == 0 &&
           b.all_block_rows() * b.block_cols < (std::int64_t{1} << 31);
  }
  static WholeBlocks of(const View& view, const Blocks& b) {
    return {view.data, b.all_block_rows() * b.block_cols, b.cols,
            static_cast<std::uint32_t>(b.block_cols)};
  }
  __device__ std::int64_t first(std::int64_t block) const {
    const std::uint32_t block_row = static_cast<std::uint32_t>(block) / block_cols;
    const std::uint32_t col = static_cast<std::uint32_t>(block) - block_row * block_cols;
    return static_cast<std::int64_t>(block_row) * 8 * cols + col * 8;
  }
};

// Any tensor. Neighbouring threads take blocks of neighbouring planes if those are neighbours in
// memory (channels last), else neighbouring blocks.
struct AnyBlocks {
  View view;
  std::int64_t count, planes, rows, cols, block_rows, block_cols;
  int block;
  bool planes_first;
  bool even_rows;  // whether the values of a row are equally far apart

  static AnyBlocks of(const View& view, const Blocks& b) {
    return {.view = view,
            .count = b.all_block_rows() * b.block_cols,
            .planes = b.planes,
            .rows = b.rows,
            .cols = b.cols,
            .block_rows = b.block_rows,
            .block_cols = b.block_cols,
            .block = b.block,
            .planes_first = b.planes > 1 && view.steps[0] != 1,
            .even_rows = view.lengths[0] % b.cols == 0};
  }
  // The block of the thread with this number.
  __device__ std::int64_t block_of(std::int64_t thread) const {
    if (!planes_first) return thread;
    return thread % planes * (block_rows * block_cols) + thread / planes;
  }
};

// Where a block of AnyBlocks begins.
struct BlockPlace {
  std::int64_t row, col;  // of the plane
  std::int64_t first;     // index of the plane's first value
  __device__ BlockPlace(const AnyBlocks& b, std::int64_t block) {
    const std::int64_t block_row = block / b.block_cols;
    row = block_row % b.block_rows * b.block;
    col = block % b.block_cols * b.block;
    first = block_row / b.block_rows * b.rows * b.cols;
  }
};

// ---- loads --------------------------------------------------------------------------------------

// Eight values from an address that is a multiple of 16.
template <class T>
__device__ TUCKFOLD_INLINE void load_row(const T* from, float* x) {
  if constexpr (sizeof(T) == 4) {
    const float4 a = *reinterpret_cast<const float4*>(from);
    const float4 b = *reinterpret_cast<const float4*>(from + 4);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  } else {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = to_float(T{static_cast<std::uint16_t>(pairs[i])});
      x[2 * i + 1] = to_float(T{static_cast<std::uint16_t>(pairs[i] >> 16)});
    }
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void load_block(const WholeBlocks& b, std::int64_t block, float* x) {
  const T* from = static_cast<const T*>(b.data) + b.first(block);
#pragma unroll
  for (int r = 0; r < 8; ++r) load_row(from + r * b.cols, x + 8 * r);
}

// Two neighbouring lanes load their two blocks of f32 together: each takes the left (even lane) or
// right (odd lane) half of both blocks' rows, so that every access of the warp is whole 32-byte
// sectors; then they exchange the rest. Half a sector costs as much as a whole one.
template <class T>
struct PairPlace {
  bool odd;  // the lane's side
  bool even_exists, odd_exists;
  T *even_block, *odd_block;  // where the lane's half of their first rows is

  __device__ PairPlace(const WholeBlocks& b, std::int64_t first) {
    const std::int64_t even = first + (threadIdx.x % kWarp & ~1u);
    odd = threadIdx.x % 2 != 0;
    even_exists = even < b.count;
    odd_exists = even + 1 < b.count;
    T* data = static_cast<T*>(b.data) + (odd ? 4 : 0);
    even_block = data + b.first(even_exists ? even : b.count - 1);
    odd_block = data + b.first(odd_exists ? even + 1 : b.count - 1);
  }
};

// A warp's blocks, `first` and the 31 after it, one per lane; lanes past the last block repeat it.
// All lanes must call this.
template <class T>
__device__ TUCKFOLD_INLINE void load_warp_blocks(const WholeBlocks& b, std::int64_t first,
                                                 float* x) {
  if constexpr (sizeof(T) == 4) {
    const PairPlace<const float> at(b, first);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float4 even = *reinterpret_cast<const float4*>(at.even_block + r * b.cols);
      const float4 odd = *reinterpret_cast<const float4*>(at.odd_block + r * b.cols);
      const float evens[4] = {even.x, even.y, even.z, even.w};
      const float odds[4] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float given = __shfl_xor_sync(kAllLanes, at.odd ? evens[i] : odds[i], 1);
        x[8 * r + i] = at.odd ? given : evens[i];
        x[8 * r + 4 + i] = at.odd ? odds[i] : given;
      }
    }
  } else {
    const std::int64_t block = first + threadIdx.x % kWarp;
    load_block<T>(b, block < b.count ? block : b.count - 1, x);
  }
}

// Rows and columns past the edge repeat the last ones. kN: the side of a block.
template <class T, int kN = 8>
__device__ TUCKFOLD_INLINE void load_block(const AnyBlocks& b, std::int64_t block, float* x) {
  const T* data = reinterpret_cast<const T*>(b.view.data);
  const BlockPlace at(b, block);
  for (int r = 0; r < kN; ++r) {
    const std::int64_t row = at.row + r < b.rows ? at.row + r : b.rows - 1;
    const std::int64_t begin = at.first + row * b.cols;
    const std::int64_t offset = b.even_rows ? b.view.offset(begin) : 0;
    for (int c = 0; c < kN; ++c) {
      const std::int64_t col = at.col + c < b.cols ? at.col + c : b.cols - 1;
      x[r * kN + c] =
          as_float(data[b.even_rows ? offset + col * b.view.steps[0] : b.view.offset(begin + col)]);
    }
  }
}

// ---- stores -------------------------------------------------------------------------------------

// tame: whether values are known to be numbers that the type holds.
template <class T>
__device__ TUCKFOLD_INLINE void store_row(T* to, const float* x, bool tame = false) {
  if constexpr (sizeof(T) == 4) {
    store_away(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
    store_away(reinterpret_cast<float4*>(to + 4), make_float4(x[4], x[5], x[6], x[7]));
  } else {
    store_away(reinterpret_cast<uint4*>(to), halves_of<T>(x, tame));
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void store_block(const WholeBlocks& b, std::int64_t block,
                                            const float* x, bool tame = false) {
  T* to = static_cast<T*>(b.data) + b.first(block);
#pragma unroll
  for (int r = 0; r < 8; ++r) store_row(to + r * b.cols, x + 8 * r, tame);
}

// The same for a warp, see load_warp_blocks.
template <class T>
__device__ TUCKFOLD_INLINE void store_warp_blocks(const WholeBlocks& b, std::int64_t first,
                                                  const float* x) {
  if constexpr (sizeof(T) == 4) {
    const PairPlace<float> at(b, first);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      float kept[4], given[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = x[8 * r + i], right = x[8 * r + 4 + i];
        kept[i] = at.odd ? right : left;
        given[i] = __shfl_xor_sync(kAllLanes, at.odd ? left : right, 1);
      }
      const float4 own = make_float4(kept[0], kept[1], kept[2], kept[3]);
      const float4 theirs = make_float4(given[0], given[1], given[2], given[3]);
      float* even = at.even_block + r * b.cols;
      float* odd = at.odd_block + r * b.cols;
      if (at.even_exists) store_away(reinterpret_cast<float4*>(even), at.odd ? theirs : own);
      if (at.odd_exists) store_away(reinterpret_cast<float4*>(odd), at.odd ? own : theirs);
    }
  } else {
    const std::int64_t block = first + threadIdx.x % kWarp;
    if (block < b.count) store_block<T>(b, block, x);
  }
}

// Leaves out rows and columns past the edge.
template <class T, int kN = 8>
__device__ TUCKFOLD_INLINE void store_block(const AnyBlocks& b, std::int64_t block,
                                            const float* x) {
  T* data = reinterpret_cast<T*>(b.view.data);
  const BlockPlace at(b, block);
  for (int r = 0; r < kN && at.row + r < b.rows; ++r) {
    const std::int64_t begin = at.first + (at.row + r) * b.cols;
    const std::int64_t offset = b.even_rows ? b.view.offset(begin) : 0;
    for (int c = 0; c < kN && at.col + c < b.cols; ++c) {
      const std::int64_t col = at.col + c;
      data[b.even_rows ? offset + col * b.view.steps[0] : b.view.offset(begin + col)] =
          from_float<T>(x[r * kN + c]);
    }
  }
}

}  // namespace tuckfold::cuda
