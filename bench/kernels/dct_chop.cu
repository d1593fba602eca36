// The ladder of dct_chop, square, f32: ways to load blocks for pack, and to store them for unpack.
#include "codec/dct_chop/dct_chop_cuda.cuh"
#include "ladder.cuh"

namespace tuckfold::dct_chop {
namespace {

constexpr std::int64_t kN = 512, kPlanes = 1024, kBlocks = kPlanes * kN / 8 * kN / 8;  // 1.07 GB
constexpr int kThreads = 128;

// ---- ways to load -------------------------------------------------------------------------------

enum class Load { Plain, Streaming, PastL1, Paired };

template <Load kHow>
__device__ TUCKFOLD_INLINE float4 load_four(const float* from) {
  if constexpr (kHow == Load::Streaming) return __ldcs(reinterpret_cast<const float4*>(from));
  if constexpr (kHow == Load::PastL1) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(from));
    return v;
  }
  return *reinterpret_cast<const float4*>(from);
}

template <int kKeep, Load kHow>
__global__ void __launch_bounds__(kThreads) pack_rung(const __grid_constant__ cuda::WholeBlocks in,
                                                      const __grid_constant__ StoredCoefs out) {
  const WarpPlace at(in.count, kThreads);
  float x[64], coefs[kKeep * kKeep];
  if constexpr (kHow == Load::Paired) {
    cuda::load_warp_blocks<float>(in, at.first, x);
  } else {
    const float* from = static_cast<const float*>(in.data) + in.first(at.block);
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
      const float4 four = load_four<kHow>(from + i / 8 * in.cols + i % 8);
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
  }
  forward_block_8(kKeep, x, 8, coefs);
  float* to = static_cast<float*>(out.data) + square_at<kKeep>(out, in.block_cols, at.block);
#pragma unroll
  for (int u = 0; u < kKeep; ++u) {
    Row<float, kKeep> row;
#pragma unroll
    for (int v = 0; v < kKeep; ++v) row.values[v] = coefs[u * kKeep + v];
    *reinterpret_cast<Row<float, kKeep>*>(to + u * out.row_values) = row;
  }
}

// ---- ways to store ------------------------------------------------------------------------------

enum class Store { Plain, Streaming, Paired, Staged, Bulk };

template <int kKeep, Store kHow>
__global__ void __launch_bounds__(kThreads)
    unpack_rung(const __grid_constant__ cuda::WholeBlocks out,
                const __grid_constant__ StoredCoefs in) {
  const WarpPlace at(out.count, kThreads);
  float x[64], coefs[kKeep * kKeep];
  const float* from =
      static_cast<const float*>(in.data) + square_at<kKeep>(in, out.block_cols, at.block);
#pragma unroll
  for (int u = 0; u < kKeep; ++u) {
    const auto row = *reinterpret_cast<const Row<float, kKeep>*>(from + u * in.row_values);
#pragma unroll
    for (int v = 0; v < kKeep; ++v) coefs[u * kKeep + v] = row.values[v];
  }
  inverse_block_8(kKeep, coefs, x, 8);
  if constexpr (kHow == Store::Paired) {
    cuda::store_warp_blocks<float>(out, at.first, x);
    return;
  }
  // The CTA's blocks are whole block rows here, so they are contiguous.
  auto* stage = reinterpret_cast<float*>(cuda::shared_memory());
  const std::int64_t piece = at.cta_first * 64, own = out.first(at.block) - piece;
  float* to = static_cast<float*>(out.data) + piece;
  const bool swap = (at.lane & 4) != 0;  // so that eight lanes write to all banks
#pragma unroll
  for (int i = 0; i < 64; i += 4) {
    const float4 four = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    const float4 other = make_float4(x[i ^ 4], x[(i ^ 4) + 1], x[(i ^ 4) + 2], x[(i ^ 4) + 3]);
    const std::int64_t row = own + i / 8 * out.cols;
    if constexpr (kHow == Store::Plain) {
      *reinterpret_cast<float4*>(to + row + i % 8) = four;
    } else if constexpr (kHow == Store::Streaming) {
      __stcs(reinterpret_cast<float4*>(to + row + i % 8), four);
    } else {
      *reinterpret_cast<float4*>(stage + row + (swap ? i % 8 ^ 4 : i % 8)) = swap ? other : four;
    }
  }
  if constexpr (kHow == Store::Staged) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int place = (i * kThreads + static_cast<int>(threadIdx.x)) * 4;
      __stcs(reinterpret_cast<float4*>(to + place), *reinterpret_cast<float4*>(stage + place));
    }
  } else if constexpr (kHow == Store::Bulk) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                   "r"(static_cast<unsigned>(__cvta_generic_to_shared(stage))), "r"(kThreads * 256)
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
  }
}

// ---- the ladder ---------------------------------------------------------------------------------

// The first blocks by the normative functions.
template <int kKeep>
std::vector<float> some_coefs(const std::vector<float>& values) {
  std::vector<float> coefs(kN / 8 * kKeep * kKeep), square(kKeep * kKeep);  // of a block row
  for (std::int64_t b = 0; b < kN / 8; ++b) {
    forward_block<8>(kDct<8>, kKeep, &values[b * 8], kN, square.data());
    for (int i = 0; i < kKeep * kKeep; ++i) {
      coefs[i / kKeep * (kN / 8 * kKeep) + b * kKeep + i % kKeep] = square[i];
    }
  }
  return coefs;
}

template <int kKeep>
void run(ladder::Ladder& steps, const std::vector<float>& values, const ladder::Buffer<float>& in,
         const ladder::Buffer<float>& back) {
  const ladder::Buffer<float> coefs(kBlocks * kKeep * kKeep);
  const cuda::WholeBlocks blocks{in.data(), kBlocks, kN, kN / 8};
  const cuda::WholeBlocks to{back.data(), kBlocks, kN, kN / 8};
  const StoredCoefs stored{.data = coefs.data(),
                           .triangle = false,
                           .planes = false,
                           .blocks = kBlocks,
                           .row_values = kN / 8 * kKeep};
  const double bytes = 4.0 * kBlocks * (64 + kKeep * kKeep);
  const std::vector<float> expected = some_coefs<kKeep>(values);
  const auto rung = [&](std::string what, auto kernel, const auto& blocks_of,
                        const ladder::Buffer<float>& out, const std::vector<float>& wanted,
                        std::size_t shared_bytes) {
    out.poison();
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared_bytes)),
                  "shared memory");
    what += ", keep " + std::to_string(kKeep);
    steps.rung(
        what.c_str(), bytes,
        [&](cudaStream_t stream) {
          kernel<<<kBlocks / kThreads, kThreads, shared_bytes, stream>>>(blocks_of, stored);
        },
        [&] { return ladder::largest_error(out, wanted); });
  };
  const auto pack = [&](const char* what, auto kernel) {
    rung(std::string("pack, ") + what, kernel, blocks, coefs, expected, 0);
  };
  pack("16 of 32 bytes a lane past the first cache", pack_rung<kKeep, Load::PastL1>);
  pack("the same, streaming", pack_rung<kKeep, Load::Streaming>);
  pack("the same, cached", pack_rung<kKeep, Load::Plain>);
  pack("two lanes a sector", pack_rung<kKeep, Load::Paired>);

  // What unpack must give is what its first rung gives, which is held against the host's.
  std::vector<float> wanted(8 * kN);
  for (std::int64_t b = 0; b < kN / 8; ++b) {
    std::vector<float> square(kKeep * kKeep);
    for (int i = 0; i < kKeep * kKeep; ++i) {
      square[i] = expected[i / kKeep * (kN / 8 * kKeep) + b * kKeep + i % kKeep];
    }
    inverse_block<8>(kDct<8>, kKeep, square.data(), &wanted[b * 8], kN);
  }
  const auto unpack = [&](const char* what, auto kernel, std::size_t shared_bytes) {
    rung(std::string("unpack, ") + what, kernel, to, back, wanted, shared_bytes);
  };
  unpack("16 of 32 bytes a lane", unpack_rung<kKeep, Store::Plain>, 0);
  unpack("the same, streaming", unpack_rung<kKeep, Store::Streaming>, 0);
  unpack("through shared memory", unpack_rung<kKeep, Store::Staged>, kThreads * 256);
  unpack("through shared memory, bulk copies", unpack_rung<kKeep, Store::Bulk>, kThreads * 256);
  unpack("two lanes a sector, past the first cache", unpack_rung<kKeep, Store::Paired>, 0);
  unpack("the same, two blocks a multiprocessor", unpack_rung<kKeep, Store::Paired>, 100000);
}

}  // namespace
}  // namespace tuckfold::dct_chop

int main(int argc, char** argv) {
  using namespace tuckfold::dct_chop;
  ladder::Ladder steps("dct_chop", argc, argv);
  const std::vector<float> values = ladder::noise(kBlocks * 64);
  const ladder::Buffer<float> in(values), back(kBlocks * 64);
  run<2>(steps, values, in, back);
  run<4>(steps, values, in, back);
  return steps.finish();
}
