// block_quant on CUDA: one kernel a call. Dense tensors of f32, f16 and bf16 go the fast way; to
// pack if their groups are powers of two in a tile.
#include <bit>

#include "base/cuda/runtime.h"
#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_pack_cuda.cuh"
#include "codec/block_quant/block_quant_unpack_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::block_quant {
namespace {

constexpr int kUsualShift = 8;            // groups of 256 have a kernel of their own
constexpr std::int64_t kLeastGroup = 32;  // a lane of the tile for each group

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }
int shift_of(std::int64_t group) { return std::countr_zero(static_cast<std::uint64_t>(group)); }

bool has_vectors(const View& view) {
  return view.dense(16) &&
         (view.dtype == DType::F32 || view.dtype == DType::F16 || view.dtype == DType::BF16);
}

// Calls body with a value of the type, for tensors that have_vectors.
template <class Body>
void with_vector_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    default: return body(float{});
  }
}

template <class T, bool kStochastic>
void launch_pack(const PackArgs& a, bool fast, void* stream) {
  constexpr int kWarps = kPackThreads / kWarp;
  if constexpr (sizeof(T) == 4 || sizeof(T) == 2) {
    if (fast) {
      const std::int64_t left = a.groups - (a.tiles * kTile >> a.group_shift);
      const cuda::Grid grid{.blocks = cuda::blocks_for(a.tiles + left, kWarps),
                            .threads = kPackThreads};
      return a.group_shift == kUsualShift
                 ? cuda::launch(pack_tiles_kernel<T, kStochastic, kUsualShift>, grid, stream, a)
                 : cuda::launch(pack_tiles_kernel<T, kStochastic, 0>, grid, stream, a);
    }
  }
  cuda::launch(pack_any_kernel<T, kStochastic>,
               {.blocks = cuda::blocks_for(a.groups, kWarps), .threads = kPackThreads}, stream, a);
}

// Room that nobody uses keeps the number of blocks on a multiprocessor down: memory likes few
// writers at a time. Where a tile of f32 takes few instructions half as many do, once the second
// cache has what they read; the first kTilesAhead do not find it there, so there must be many.
std::size_t occupancy_limit_bytes(const UnpackArgs& a, std::size_t element_bytes,
                                  std::int64_t tiles) {
  if (element_bytes == 2) return 33000;
  const bool quick = (a.bits == 2 || a.bits == 4 || a.bits == 8) && a.group_shift >= 0;
  return quick && tiles >= 32 * kTilesAhead ? 100000 : 50000;
}

template <class T>
void launch_unpack_tiles(const UnpackArgs& a, void* stream) {
  constexpr int kWarps = kUnpackThreads / kWarp;
  const std::int64_t tiles = cuda::blocks_for(a.view.elems, kTile);
  const auto launch = [&](auto kernel) {
    cuda::launch(kernel,
                 {.blocks = cuda::blocks_for(tiles, kWarps),
                  .threads = kUnpackThreads,
                  .shared_bytes = occupancy_limit_bytes(a, sizeof(T), tiles)},
                 stream, a);
  };
  switch (a.bits) {
    case 1: return launch(unpack_tiles_kernel<T, 1>);
    case 2: return launch(unpack_tiles_kernel<T, 2>);
    case 3: return launch(unpack_tiles_kernel<T, 3>);
    case 4: return launch(unpack_tiles_kernel<T, 4>);
    case 5: return launch(unpack_tiles_kernel<T, 5>);
    case 6: return launch(unpack_tiles_kernel<T, 6>);
    case 7: return launch(unpack_tiles_kernel<T, 7>);
    default: return launch(unpack_tiles_kernel<T, 8>);
  }
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const Params p = Params::of(stage);
  const View view = View::of(in);
  if (view.elems == 0) return out.size();
  const Sizes sizes = sizes_of(p, view.elems);
  const bool fast =
      has_vectors(view) && is_power_of_two(p.group) && p.group >= kLeastGroup && p.group <= kTile;
  const PackArgs args{.view = view,
                      .codes = out.data(),
                      .headers = out.data() + sizes.codes_bytes,
                      .tiles = fast ? view.elems / kTile : 0,
                      .groups = sizes.groups,
                      .group = p.group,
                      .seed = run.seed,
                      .bits = p.bits,
                      .group_shift = shift_of(p.group),
                      .exact_zero = p.exact_zero};
  cuda::with_element(view.dtype, [&]<class T>(T) {
    p.stochastic ? launch_pack<T, true>(args, fast, run.stream)
                 : launch_pack<T, false>(args, fast, run.stream);
  });
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  const Params p = Params::of(stage);
  const View view = View::of(out);
  if (view.elems == 0) return;
  const UnpackArgs args{.view = view,
                        .codes = packed.data(),
                        .headers = packed.data() + sizes_of(p, view.elems).codes_bytes,
                        .group = p.group,
                        .bits = p.bits,
                        .group_shift = is_power_of_two(p.group) ? shift_of(p.group) : -1};
  if (has_vectors(view)) {
    return with_vector_element(view.dtype,
                               [&]<class T>(T) { launch_unpack_tiles<T>(args, run.stream); });
  }
  cuda::with_element(view.dtype, [&]<class T>(T) {
    cuda::launch(
        unpack_any_kernel<T>,
        {.blocks = cuda::blocks_for(view.elems, kUnpackThreads), .threads = kUnpackThreads},
        run.stream, args);
  });
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::block_quant
