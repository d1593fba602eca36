// Forward of a butterfly of 4096 floats, see butterfly_pipeline.cuh. A lane has 16 features that four stages mix,
// and their twiddles in registers; samples of a tile follow each other. Results are left where features were.
#pragma once

#include "butterfly_pipeline.cuh"

namespace tuckfold::structured::pipeline {

constexpr int kBiasBytes = kFeatures / kRanks * sizeof(float);

// The twiddles of 16 features of a lane: feature(k) is the number of the k-th one.
struct Stages {
  float4 at[4][8];

  template <class Feature>
  __device__ TUCKFOLD_INLINE void load(const CudaButterfly& s, const float* twiddle, int digit,
                                       Feature&& feature) {
    const auto* from = reinterpret_cast<const float4*>(twiddle);
    TUCKFOLD_UNROLL
    for (int i = 0; i < 32; ++i) {
      const int bit = i / 8, pair = i % 8;
      at[bit][pair] = from[twiddle_of(s, feature(first_of(pair, bit)), 4 * digit + bit)];
    }
  }
  __device__ TUCKFOLD_INLINE void turn(float (&v)[16], int stages = 4) const {
    TUCKFOLD_UNROLL
    for (int bit = 0; bit < stages; ++bit) {
      TUCKFOLD_UNROLL
      for (int p = 0; p < 8; ++p) {
        const float4& t = at[bit][p];
        const int k = first_of(p, bit), other = k + (1 << bit);
        const float a = v[k], b = v[other];
        v[k] = fmaf(t.y, b, t.x * a);
        v[other] = fmaf(t.w, b, t.z * a);
      }
    }
  }
  // The last stage adds bias.
  __device__ TUCKFOLD_INLINE void turn_with(const float4* bias, float (&v)[16]) const {
    turn(v, 3);
    TUCKFOLD_UNROLL
    for (int quad = 0; quad < 2; ++quad) {
      const float4 low = bias[quad * 32], high = bias[(quad + 2) * 32];
      const float lows[] = {low.x, low.y, low.z, low.w};
      const float highs[] = {high.x, high.y, high.z, high.w};
      TUCKFOLD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int k = quad * 4 + i;
        const float4& t = at[3][k];
        const float a = v[k], b = v[k + 8];
        v[k] = fmaf(t.y, b, fmaf(t.x, a, lows[i]));
        v[k + 8] = fmaf(t.w, b, fmaf(t.z, a, highs[i]));
      }
    }
  }
};

// Where four lower digits of a sample are among features of the same highest and middle digit, 256 bytes: lanes
// that differ in the middle digit, or the lowest and one bit of the others, find theirs in different banks.
__device__ TUCKFOLD_INLINE int quad_at(int high, int middle, int quad, int sample) {
  return (sample ^ ((middle ^ high) & 1)) * 64 + (quad ^ (middle >> 1 & 3)) * 16;
}

__device__ TUCKFOLD_INLINE void first_digit(const Stages& stages, int lane, unsigned char* part) {
  const int high = lane / 16, middle = lane % 16;
  unsigned char* at = part + high * kDigitBytes + middle * 256;
#pragma unroll 1
  for (int sample = 0; sample < kSamples<float>; ++sample) {
    float v[16];
    TUCKFOLD_UNROLL
    for (int q = 0; q < 4; ++q) {
      const auto four = *reinterpret_cast<const float4*>(at + quad_at(high, middle, q, sample));
      v[4 * q] = four.x, v[4 * q + 1] = four.y, v[4 * q + 2] = four.z, v[4 * q + 3] = four.w;
    }
    stages.turn(v);
    TUCKFOLD_UNROLL
    for (int q = 0; q < 4; ++q) {
      *reinterpret_cast<float4*>(at + quad_at(high, middle, q, sample)) =
          make_float4(v[4 * q], v[4 * q + 1], v[4 * q + 2], v[4 * q + 3]);
    }
  }
}

__device__ TUCKFOLD_INLINE void second_digit(const Stages& stages, int lane, unsigned char* part) {
  const int high = lane / 16, low = lane % 16;
  unsigned char* at = part + high * kDigitBytes + low % 4 * 4;
#pragma unroll 1
  for (int sample = 0; sample < kSamples<float>; ++sample) {
    float v[16];
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) {
      v[k] = *reinterpret_cast<const float*>(at + k * 256 + quad_at(high, k, low / 4, sample));
    }
    stages.turn(v);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) {
      *reinterpret_cast<float*>(at + k * 256 + quad_at(high, k, low / 4, sample)) = v[k];
    }
  }
}

template <class L, Way kWay>
__global__ void __launch_bounds__(kThreads, 1)
    float_kernel(const __grid_constant__ Args<float> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const CudaButterfly& s = args.s;
  int product;
  const L line = line_of<L>(args, product);
  const int role = static_cast<int>(threadIdx.x) / (32 * kOfRole);
  const int rank = line.rank, warp = line.warp, lane = line.lane;
  const int outputs = min(s.n, s.out - product * s.n);
  const float* twiddle = args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4;
  const int feature = (rank * kOfRole + warp) * 512;  // in the first digits

  if (threadIdx.x == 0) line.init();
  if (kWay == Way::NextEarly) cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();
  Stages stages;
  if (role == 0) {
    const auto start = [&](int tile, unsigned char* to) {
      if (!has_loads(kWay) && tile >= 0) return;
      start_part(args, feature, std::int64_t{tile} * kSamples<float>, fresh(lane),
                 [&](int sample, int piece) {
                   const int high = piece / 64, middle = piece / 4 % 16;
                   return to + high * kDigitBytes + middle * 256 +
                          quad_at(high, middle, piece % 4, sample);
                 });
    };
    line.start_first(start);
    stages.load(s, twiddle, 0, [&](int k) { return feature + lane * 16 + k; });
    cuda::cluster_barrier();
    line.run_first(start, [&](unsigned char* part) { first_digit(stages, fresh(lane), part); });
  } else if (role == 1) {
    stages.load(s, twiddle, 1,
                [&](int k) { return feature + lane / 16 * 256 + k * 16 + lane % 16; });
    cuda::cluster_barrier();
    line.run_second([&](unsigned char* part) { second_digit(stages, fresh(lane), part); });
  } else {
    const int last = (rank * kOfRole + warp) * 32 + lane;  // of the first highest digit
    auto* bias = reinterpret_cast<float4*>(line.signals + 1) + warp * (4 * 32) + lane;
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) {
      const bool has = args.bias != nullptr && k * 256 + last < outputs;
      reinterpret_cast<float*>(bias + k / 4 * 32)[k % 4] =
          has ? args.bias[product * s.n + k * 256 + last] : 0.0f;
    }
    stages.load(s, twiddle, 2, [&](int k) { return k * 256 + last; });
    cuda::cluster_barrier();
    line.run_third([&](int tile, const unsigned char* from, int) {
      const int here = fresh(lane), middle = 2 * warp + here / 16;
      const unsigned char* at = from + middle * 256 + here % 4 * 4;
      const std::int64_t first = std::int64_t{tile} * kSamples<float>;
      float* y = args.y + first * s.out + product * s.n + last;
#pragma unroll 1
      for (int sample = 0; sample < kSamples<float>; ++sample) {
        float v[16];
        TUCKFOLD_UNROLL
        for (int k = 0; k < 16; ++k) {
          v[k] = *reinterpret_cast<const float*>(at + k * (kDigitBytes / 2) +
                                                 quad_at(k, middle, here % 16 / 4, sample));
        }
        stages.turn_with(bias, v);
        if (first + sample >= args.samples || (!has_stores(kWay) && tile >= 0)) continue;
        if (outputs == kFeatures) {
          TUCKFOLD_UNROLL
          for (int k = 0; k < 16; ++k) {
            if (kWay == Way::PlainStores) {
              y[k * 256] = v[k];
            } else {
              __stcs(y + k * 256, v[k]);
            }
          }
        } else {
          TUCKFOLD_UNROLL
          for (int k = 0; k < 16; ++k) {
            if (k * 256 + last < outputs) y[k * 256] = v[k];
          }
        }
        y += s.out;
      }
    });
  }
  // Others may still write here, or signal.
  cuda::cluster_barrier();
#endif
}

template <class L, Way kWay = Way::Whole>
void float_forward(const CudaButterfly& s, std::int64_t samples, const float* x,
                   const float* twiddle, const float* bias, float* y, void* stream) {
  thread_local AtOnce at_once;
  run(float_kernel<L, kWay>, L::kBytes + kBiasBytes,
      args_of<float>(s, samples, x, twiddle, bias, y), stream, at_once);
}

}  // namespace tuckfold::structured::pipeline
