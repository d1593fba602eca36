// dct_chop, square, f32: ways to load blocks for pack and to store them for unpack.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/dct_chop_cuda.cuh"

namespace tuckfold::dct_chop {

enum class Load { Direct, Paired, Streaming, NoAllocate };
enum class Store { Direct, DirectPlain, Paired, PairedPlain, Staged, Bulk };

__device__ TUCKFOLD_INLINE float4 load4(const float* p, Load how) {
  if (how == Load::Streaming) return __ldcs(reinterpret_cast<const float4*>(p));
  if (how == Load::NoAllocate) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
  }
  return *reinterpret_cast<const float4*>(p);
}

template <Load kHow>
__device__ TUCKFOLD_INLINE void load_any_way(const cuda::WholeBlocks& b, std::int64_t block,
                                             float* x) {
  const float* from = static_cast<const float*>(b.data) + b.first(block);
  if constexpr (kHow == Load::Paired) {
    const bool odd = threadIdx.x % 2 != 0;
    const float* other = static_cast<const float*>(b.data) + b.first(block ^ 1);
    const float* first = (odd ? other : from) + (odd ? 4 : 0);
    const float* second = (odd ? from : other) + (odd ? 4 : 0);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float4 a = *reinterpret_cast<const float4*>(first + r * b.cols);
      const float4 c = *reinterpret_cast<const float4*>(second + r * b.cols);
      const float av[4] = {a.x, a.y, a.z, a.w}, cv[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // even: a = own left, c = other's left; odd: a = other's right, c = own right
        const float got = __shfl_xor_sync(~0u, odd ? av[i] : cv[i], 1);
        x[8 * r + i] = odd ? got : av[i];
        x[8 * r + 4 + i] = odd ? cv[i] : got;
      }
    }
  } else {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float4 a = load4(from + r * b.cols, kHow), c = load4(from + r * b.cols + 4, kHow);
      x[8 * r] = a.x, x[8 * r + 1] = a.y, x[8 * r + 2] = a.z, x[8 * r + 3] = a.w;
      x[8 * r + 4] = c.x, x[8 * r + 5] = c.y, x[8 * r + 6] = c.z, x[8 * r + 7] = c.w;
    }
  }
}

template <int kKeep, Load kHow, int kT>
__global__ void __launch_bounds__(kT)
    pack_k(const __grid_constant__ cuda::WholeBlocks in, const __grid_constant__ Stored out) {
  __shared__ float tile[kT / 32][32 * kKeep * kKeep];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kT + threadIdx.x;
  float x[64], coefs[kKeep * kKeep];
  load_any_way<kHow>(in, block, x);
  forward_block_8(kKeep, x, 8, coefs);
  float* to = static_cast<float*>(out.data);
  const std::int64_t square = square_at<kKeep>(out, in.block_cols, block);
  if constexpr (kRowAtOnce<float, kKeep>) {
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      Row<float, kKeep> row;
#pragma unroll
      for (int v = 0; v < kKeep; ++v) row.values[v] = coefs[u * kKeep + v];
      *reinterpret_cast<Row<float, kKeep>*>(to + square + u * out.row_values) = row;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i)
      tile[warp][i / kKeep * 32 * kKeep + lane * kKeep + i % kKeep] = coefs[i];
    __syncwarp();
#pragma unroll
    for (int turn = 0; turn < kKeep; ++turn) {
      const int i = turn * 32 + lane, owner = i / kKeep, v = i % kKeep;
      const std::int64_t from = __shfl_sync(~0u, square, owner) + v;
#pragma unroll
      for (int u = 0; u < kKeep; ++u)
        to[from + u * out.row_values] = tile[warp][u * 32 * kKeep + i];
    }
  }
}

template <int kKeep, Store kHow, int kT>
__global__ void __launch_bounds__(kT)
    unpack_k(const __grid_constant__ cuda::WholeBlocks out, const __grid_constant__ Stored in) {
  extern __shared__ __align__(128) float room[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kT + threadIdx.x;
  float x[64], coefs[kKeep * kKeep];
  const float* from = static_cast<const float*>(in.data);
  const std::int64_t square = square_at<kKeep>(in, out.block_cols, block);
  if constexpr (kRowAtOnce<float, kKeep>) {
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      const auto row =
          *reinterpret_cast<const Row<float, kKeep>*>(from + square + u * in.row_values);
#pragma unroll
      for (int v = 0; v < kKeep; ++v) coefs[u * kKeep + v] = row.values[v];
    }
  } else {
    float* tile = room + warp * 32 * kKeep * kKeep;
#pragma unroll
    for (int turn = 0; turn < kKeep; ++turn) {
      const int i = turn * 32 + lane, owner = i / kKeep, v = i % kKeep;
      const std::int64_t at = __shfl_sync(~0u, square, owner) + v;
#pragma unroll
      for (int u = 0; u < kKeep; ++u) tile[u * 32 * kKeep + i] = from[at + u * in.row_values];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i)
      coefs[i] = tile[i / kKeep * 32 * kKeep + lane * kKeep + i % kKeep];
    if constexpr (kHow == Store::Staged || kHow == Store::Bulk) __syncthreads();
  }
  inverse_block_8(kKeep, coefs, x, 8);
  if constexpr (kHow == Store::Paired) {
    cuda::store_warp_blocks<float>(out, block - lane, x);
  } else if constexpr (kHow == Store::PairedPlain) {
    const bool odd = threadIdx.x % 2 != 0;
    float* to = static_cast<float*>(out.data) + out.first(block);
    float* other = static_cast<float*>(out.data) + out.first(block ^ 1);
    float* first = (odd ? other : to) + (odd ? 4 : 0);
    float* second = (odd ? to : other) + (odd ? 4 : 0);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      float kept[4], given[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = x[8 * r + i], right = x[8 * r + 4 + i];
        kept[i] = odd ? right : left;
        given[i] = __shfl_xor_sync(~0u, odd ? left : right, 1);
      }
      const float4 own = make_float4(kept[0], kept[1], kept[2], kept[3]);
      const float4 theirs = make_float4(given[0], given[1], given[2], given[3]);
      *reinterpret_cast<float4*>(first + r * out.cols) = odd ? theirs : own;
      *reinterpret_cast<float4*>(second + r * out.cols) = odd ? own : theirs;
    }
  } else if constexpr (kHow == Store::Direct) {
    cuda::store_block<float>(out, block, x);
  } else if constexpr (kHow == Store::DirectPlain) {
    float* to = static_cast<float*>(out.data) + out.first(block);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      *reinterpret_cast<float4*>(to + r * out.cols) =
          make_float4(x[8 * r], x[8 * r + 1], x[8 * r + 2], x[8 * r + 3]);
      *reinterpret_cast<float4*>(to + r * out.cols + 4) =
          make_float4(x[8 * r + 4], x[8 * r + 5], x[8 * r + 6], x[8 * r + 7]);
    }
  } else {
    // The block's part of the tensor, contiguous where it is whole strips.
    const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * kT * 64;
    const std::int64_t at = out.first(block) - base;
    const bool swap = (lane & 4) != 0;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float4 left = make_float4(x[8 * r], x[8 * r + 1], x[8 * r + 2], x[8 * r + 3]);
      const float4 right = make_float4(x[8 * r + 4], x[8 * r + 5], x[8 * r + 6], x[8 * r + 7]);
      float* row = room + at + r * out.cols;
      *reinterpret_cast<float4*>(row + (swap ? 4 : 0)) = swap ? right : left;
      *reinterpret_cast<float4*>(row + (swap ? 0 : 4)) = swap ? left : right;
    }
    float* to = static_cast<float*>(out.data) + base;
    if constexpr (kHow == Store::Staged) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int e = (i * kT + threadIdx.x) * 4;
        __stcs(reinterpret_cast<float4*>(to + e), *reinterpret_cast<const float4*>(room + e));
      }
    } else {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      if (threadIdx.x == 0) {
        const unsigned source = static_cast<unsigned>(__cvta_generic_to_shared(room));
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(source), "r"(kT * 256)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      }
    }
  }
}

}  // namespace tuckfold::dct_chop

using namespace tuckfold;
using namespace tuckfold::dct_chop;

#define CHECK(x)                                                            \
  do {                                                                      \
    cudaError_t e = (x);                                                    \
    if (e != cudaSuccess) {                                                 \
      std::printf("%s: %s line %d\n", #x, cudaGetErrorString(e), __LINE__); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

float* flush_room;
template <class Run>
double median_us(Run&& run, int times = 15) {
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  std::vector<float> all;
  for (int i = 0; i < times + 3; ++i) {
    cudaMemsetAsync(flush_room, i, 256 << 20);
    cudaEventRecord(a);
    run();
    cudaEventRecord(b);
    CHECK(cudaEventSynchronize(b));
    float ms;
    cudaEventElapsedTime(&ms, a, b);
    if (i >= 3) all.push_back(ms * 1000);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

struct Case {
  float *in, *coefs, *back, *wanted_coefs, *wanted_back;
  std::int64_t elems;
  int n;
  double copy_gbps;
};

template <int kKeep, class Launch>
void report(const char* op, const char* name, const Case& c, bool packs, Launch&& launch) {
  const std::int64_t coefs = c.elems / 64 * kKeep * kKeep;
  float* out = packs ? c.coefs : c.back;
  const std::int64_t bytes = (packs ? coefs : c.elems) * 4;
  CHECK(cudaMemset(out, 0xff, bytes));
  launch();
  CHECK(cudaDeviceSynchronize());
  // Compare the ends with the first variant's.
  const std::int64_t some = std::min<std::int64_t>(bytes, 64 << 20);
  std::vector<char> got(some), want(some);
  bool same = true;
  for (const std::int64_t at : {std::int64_t{0}, bytes - some}) {
    cudaMemcpy(got.data(), reinterpret_cast<char*>(out) + at, some, cudaMemcpyDefault);
    cudaMemcpy(want.data(), reinterpret_cast<char*>(packs ? c.wanted_coefs : c.wanted_back) + at,
               some, cudaMemcpyDefault);
    same = same && std::memcmp(got.data(), want.data(), some) == 0;
  }
  const double us = median_us(launch);
  CHECK(cudaGetLastError());
  const double gbps = (c.elems + coefs) * 4 / us / 1e3;
  std::printf("%-6s n=%d %5.2fGB keep=%d %-16s %8.1f us %6.0f GB/s %5.1f%% %s\n", op, c.n,
              c.elems * 4e-9, kKeep, name, us, gbps, 100 * gbps / c.copy_gbps, same ? "" : "WRONG");
  std::fflush(stdout);
}

template <int kKeep>
void run(Case c) {
  const std::int64_t blocks = c.elems / 64, coefs = blocks * kKeep * kKeep;
  const cuda::WholeBlocks in{c.in, blocks, c.n, static_cast<unsigned>(c.n / 8)};
  const cuda::WholeBlocks back{c.back, blocks, c.n, static_cast<unsigned>(c.n / 8)};
  const Stored stored{.data = c.coefs,
                      .triangle = false,
                      .planes = false,
                      .blocks = blocks,
                      .row_values = c.n / 8 * kKeep};
  pack_whole<float, float, kKeep><<<blocks / 128, 128>>>(in, stored);
  CHECK(cudaMemcpy(c.wanted_coefs, c.coefs, coefs * 4, cudaMemcpyDefault));
  report<kKeep>("pack", "product", c, true,
                [&] { pack_whole<float, float, kKeep><<<blocks / 128, 128>>>(in, stored); });
#define PACK(load, threads)                                                        \
  report<kKeep>("pack", #load " " #threads, c, true, [&] {                         \
    pack_k<kKeep, Load::load, threads><<<blocks / threads, threads>>>(in, stored); \
  });
  PACK(Direct, 128)
  PACK(Paired, 128)
  PACK(Streaming, 128)
  PACK(NoAllocate, 128)
  PACK(Direct, 64)
  CHECK(cudaMemcpy(c.coefs, c.wanted_coefs, coefs * 4, cudaMemcpyDefault));
  unpack_whole<float, float, kKeep><<<blocks / 128, 128>>>(back, stored);
  CHECK(cudaMemcpy(c.wanted_back, c.back, c.elems * 4, cudaMemcpyDefault));
  report<kKeep>("unpack", "product", c, false,
                [&] { unpack_whole<float, float, kKeep><<<blocks / 128, 128>>>(back, stored); });
#define UNPACK(store, threads)                                                              \
  {                                                                                         \
    auto* kernel = unpack_k<kKeep, Store::store, threads>;                                  \
    const bool staged = Store::store == Store::Staged || Store::store == Store::Bulk;       \
    const int smem = std::max(kRowAtOnce<float, kKeep> ? 0 : threads * kKeep * kKeep * 4,   \
                              staged ? threads * 256 : 0);                                  \
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem)); \
    report<kKeep>("unpack", #store " " #threads, c, false,                                  \
                  [&] { kernel<<<blocks / threads, threads, smem>>>(back, stored); });      \
  }
  UNPACK(Direct, 128)
  UNPACK(DirectPlain, 128)
  UNPACK(Paired, 128)
  UNPACK(PairedPlain, 128)
  UNPACK(Staged, 128)
  UNPACK(Bulk, 64)
  UNPACK(Bulk, 128)
  UNPACK(Bulk, 256)
}

int main() {
  Case c{};
  const std::int64_t most = std::int64_t{4095} * 512 * 512;
  for (float** p : {&c.in, &c.coefs, &c.back, &c.wanted_coefs, &c.wanted_back})
    CHECK(cudaMalloc(p, most * 4));
  CHECK(cudaMalloc(&flush_room, 256 << 20));
  std::vector<float> random(1 << 22);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (float& v : random) v = normal(generator);
  for (std::int64_t at = 0; at < most; at += random.size())
    cudaMemcpy(c.in + at, random.data(), std::min<std::int64_t>(random.size(), most - at) * 4,
               cudaMemcpyDefault);
  const double us =
      median_us([&] { cudaMemcpyAsync(c.back, c.in, most * 4, cudaMemcpyDeviceToDevice); });
  c.copy_gbps = most * 8 / us / 1e3;
  const double fill = median_us([&] { cudaMemsetAsync(c.back, 1, most * 4); });
  std::printf("copy %.0f GB/s, fill %.0f GB/s\n", c.copy_gbps, most * 4 / fill / 1e3);
  for (const auto& [n, elems] : {std::pair<int, std::int64_t>{512, most},
                                 {512, std::int64_t{300} * 512 * 512},
                                 {64, std::int64_t{15000} * 64 * 64}}) {
    c.n = n;
    c.elems = elems;
    run<2>(c);
    run<4>(c);
    run<7>(c);
  }
}
