// dct_chop on CUDA for small tensors, many of them in one launch: eight lanes share a block of 8,
// so that every multiprocessor has work at once. Each takes a column; of the coefficients halfway
// each warp takes one row of 32 blocks.
#pragma once

#include <cstdint>

#include "codec/blocks/blocks_cuda.cuh"
#include "codec/dct_chop/dct_chop_block.h"

namespace tuckfold::dct_chop {

inline constexpr int kLaneThreads = 256, kLaneBlocks = kLaneThreads / 8;  // of a CTA
static_assert(kLaneBlocks == cuda::kWarp);
// As many as a multiprocessor must hold at once; ptxas would rather have room for more, and spend
// so few registers that loads wait for each other.
inline constexpr int kLaneBlocksPerSm = 5;

// A dense tensor of whole blocks and its coefficients.
struct LaneTensor {
  void* data;
  void* stored;
  std::uint32_t first_cta;
  std::uint32_t blocks, block_cols;
};

// The CTAs of one tensor follow those of the one before it. They travel as an argument: nothing
// must outlive the call, not even where a graph records it.
template <int kMost>
struct LaneTensors {
  LaneTensor tensors[kMost];
  int count;
  DType dtype, coef;
  bool triangle, planes;

  __device__ TUCKFOLD_INLINE const LaneTensor& of(std::uint32_t cta) const {
    int at = 0, end = kMost == 1 ? 1 : count;
    while (end - at > 1) {
      const int middle = (at + end) / 2;
      (tensors[middle].first_cta <= cta ? at : end) = middle;
    }
    return tensors[at];
  }
};
// As many as an argument can hold.
inline constexpr int kMostLaneTensors = 1000;

// A lane's place twice: as one of eight that share a block, and as one of a warp's, a block each.
// Tensors are small (kSmallBlocks), so 32 bits count their values.
template <int kKeep>
struct LanePlace {
  int thread, lane;
  std::uint32_t first;   // block of the CTA
  int valid;             // blocks that exist
  std::uint32_t column;  // the lane's column begins here
  std::uint32_t cols;    // and its values are so far apart
  int u;                 // the warp's row,
  int count;             // with so many values stored,
  std::uint32_t row;     // of the lane's block from here on,
  std::uint32_t step;    // so far apart

  __device__ TUCKFOLD_INLINE LanePlace(const LaneTensor& tensor, bool triangle, bool planes)
      : thread(static_cast<int>(threadIdx.x)), lane(thread % cuda::kWarp), u(thread / cuda::kWarp) {
    first = (blockIdx.x - tensor.first_cta) * kLaneBlocks;
    const std::uint32_t left = tensor.blocks - first;
    valid = left < kLaneBlocks ? static_cast<int>(left) : kLaneBlocks;
    const auto at = [&](int local) {
      return first + static_cast<std::uint32_t>(local < valid ? local : valid - 1);
    };
    cols = tensor.block_cols * 8;
    const std::uint32_t shared = at(thread / 8);
    column = shared / tensor.block_cols * cols * 8 + shared % tensor.block_cols * 8 +
             static_cast<std::uint32_t>(thread % 8);
    const std::uint32_t block = at(lane), block_row = block / tensor.block_cols;
    const auto number =
        static_cast<std::uint32_t>(triangle ? u * kKeep - u * (u - 1) / 2 : u * kKeep);
    count = u >= kKeep ? 0 : triangle ? kKeep - u : kKeep;
    step = planes ? tensor.blocks : 1;
    if (planes) {
      row = number * tensor.blocks + block;
    } else if (triangle) {
      row = block * (kKeep * (kKeep + 1) / 2) + number;
    } else {
      row = ((block_row * kKeep + static_cast<std::uint32_t>(u)) * tensor.block_cols +
             block % tensor.block_cols) *
            kKeep;
    }
  }
  __device__ bool has_column() const { return thread / 8 < valid; }
  __device__ bool has_row() const { return lane < valid; }
};

// Coefficients halfway: of each row eight values of each block. Halves change places in every other
// four lanes, so that eight lanes reach all banks.
template <int kKeep>
struct Halfway {
  alignas(16) float rows[kKeep][kLaneThreads];

  __device__ TUCKFOLD_INLINE void get_row(int u, int lane, float* x) const {
    const float4* row = reinterpret_cast<const float4*>(rows[u]) + 2 * lane;
    const int turn = lane >> 2 & 1;
    const float4 a = row[turn], b = row[1 - turn];
    const float4 left = turn != 0 ? b : a, right = turn != 0 ? a : b;
    x[0] = left.x, x[1] = left.y, x[2] = left.z, x[3] = left.w;
    x[4] = right.x, x[5] = right.y, x[6] = right.z, x[7] = right.w;
  }
  __device__ TUCKFOLD_INLINE void put_row(int u, int lane, const float* x) {
    float4* row = reinterpret_cast<float4*>(rows[u]) + 2 * lane;
    const int turn = lane >> 2 & 1;
    const float4 left = make_float4(x[0], x[1], x[2], x[3]);
    const float4 right = make_float4(x[4], x[5], x[6], x[7]);
    row[turn] = turn != 0 ? right : left;
    row[1 - turn] = turn != 0 ? left : right;
  }
};

// Calls body with the elements, typed. kF32: whether they are f32, known before.
template <bool kF32, class Body>
__device__ TUCKFOLD_INLINE void typed(void* elements, DType dtype, Body&& body) {
  switch (kF32 ? DType::F32 : dtype) {
    case DType::F16: return body(static_cast<F16*>(elements));
    case DType::BF16: return body(static_cast<BF16*>(elements));
    default: return body(static_cast<float*>(elements));
  }
}
__device__ TUCKFOLD_INLINE const void* address(void* elements, DType dtype, std::int64_t index) {
  return static_cast<const char*>(elements) + index * (dtype == DType::F32 ? 4 : 2);
}

template <int kKeep, int kMost, bool kF32>
__global__ void __launch_bounds__(kLaneThreads, kLaneBlocksPerSm)
    pack_lanes(const __grid_constant__ LaneTensors<kMost> tensors) {
  __shared__ Halfway<kKeep> halfway;
  const LaneTensor tensor = tensors.of(blockIdx.x);
  const LanePlace<kKeep> at(tensor, tensors.triangle, tensors.planes);
  // Lane k of a block asks for its row k.
  cuda::prefetch(address(tensor.data, tensors.dtype,
                         at.column + static_cast<std::uint32_t>(at.thread % 8) * (at.cols - 1)));
  cuda::wait_for_previous_kernel();

  float x[8], y[8];
  typed<kF32>(tensor.data, tensors.dtype, [&](const auto* from) {
#pragma unroll
    for (int r = 0; r < 8; ++r) x[r] = cuda::as_float(from[at.column + r * at.cols]);
  });
  cuda::allow_next_kernel();
  forward_column_8(kKeep, x, 1, y, 1);
#pragma unroll
  for (int u = 0; u < kKeep; ++u) halfway.rows[u][at.thread] = y[u];
  __syncthreads();
  if (at.u < kKeep) {
    halfway.get_row(at.u, at.lane, x);
    forward_row_8(kScaled[at.u], kKeep, x, y);
    settle_nans(1, kKeep, y, 0);
  }

  typed<kF32>(tensor.stored, tensors.coef, [&](auto* to) {
    using Coef = std::remove_reference_t<decltype(*to)>;
    if (tensors.planes) {
#pragma unroll
      for (int v = 0; v < kKeep; ++v) {
        if (v < at.count && at.has_row()) {
          to[at.row + v * at.step] = cuda::from_float<Coef>(y[v]);
        }
      }
    } else if (tensors.triangle) {  // of 32 blocks in one piece
      constexpr int kValues = kKeep * (kKeep + 1) / 2;
      to += at.first * kValues;
      float* piece = halfway.rows[0];
      const int own = at.lane * kValues + kValues - (kKeep - at.u) * (kKeep - at.u + 1) / 2;
      __syncthreads();  // all rows have been read
#pragma unroll
      for (int v = 0; v < kKeep; ++v) {
        if (v < at.count) piece[own + v] = y[v];
      }
      __syncthreads();
      for (int i = at.thread; i < at.valid * kValues; i += kLaneThreads) {
        to[i] = cuda::from_float<Coef>(piece[i]);
      }
    } else if (at.u < kKeep) {  // rows of neighbouring blocks side by side
      float* mine = halfway.rows[at.u];
      __syncwarp();
#pragma unroll
      for (int v = 0; v < kKeep; ++v) mine[at.lane * kKeep + v] = y[v];
      __syncwarp();
#pragma unroll
      for (int turn = 0; turn < kKeep; ++turn) {
        const int i = turn * cuda::kWarp + at.lane;
        const std::uint32_t row = __shfl_sync(cuda::kAllLanes, at.row, i / kKeep);
        if (i < at.valid * kKeep) {
          to[row + static_cast<std::uint32_t>(i % kKeep)] = cuda::from_float<Coef>(mine[i]);
        }
      }
    }
  });
}

template <int kKeep, int kMost, bool kF32>
__global__ void __launch_bounds__(kLaneThreads, kLaneBlocksPerSm)
    unpack_lanes(const __grid_constant__ LaneTensors<kMost> tensors) {
  __shared__ Halfway<kKeep> halfway;
  const LaneTensor tensor = tensors.of(blockIdx.x);
  const LanePlace<kKeep> at(tensor, tensors.triangle, tensors.planes);
  if (at.u < kKeep) cuda::prefetch(address(tensor.stored, tensors.coef, at.row));
  cuda::wait_for_previous_kernel();

  float x[8], y[8];
  if (at.u < kKeep) {
    typed<kF32>(tensor.stored, tensors.coef, [&](const auto* from) {
#pragma unroll
      for (int v = 0; v < kKeep; ++v) {
        y[v] = v < at.count ? cuda::as_float(from[at.row + v * at.step]) : 0.0f;
      }
    });
    inverse_row_8(kScaled[at.u], kKeep, y, x);
    halfway.put_row(at.u, at.lane, x);
  }
  cuda::allow_next_kernel();
  __syncthreads();
  if (!at.has_column()) return;
#pragma unroll
  for (int u = 0; u < kKeep; ++u) y[u] = halfway.rows[u][at.thread];
  inverse_column_8(kKeep, y, 1, x, 1);
  settle_nans(1, 8, x, 0);
  typed<kF32>(tensor.data, tensors.dtype, [&](auto* to) {
    using T = std::remove_reference_t<decltype(*to)>;
#pragma unroll
    for (int r = 0; r < 8; ++r) to[at.column + r * at.cols] = cuda::from_float<T>(x[r]);
  });
}

}  // namespace tuckfold::dct_chop
