// dct_quant on CUDA: at rates up to 8 by kernels that keep a block in registers, one for dense
// tensors of whole blocks and one for all others; higher rates, and what those do not take, by the
// normative functions, a block a thread as well.
#include "codec/dct_quant/dct_quant_planes_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::dct_quant {
namespace {

using cuda::AnyBlocks;
using cuda::View;
using cuda::WholeBlocks;

// ---- any tensor, any rate -----------------------------------------------------------------------

constexpr int kPlainThreads = 128;

template <class T>
__global__ __launch_bounds__(kPlainThreads) void pack_plain_kernel(
    const __grid_constant__ AnyBlocks blocks, const __grid_constant__ Params params,
    std::uint8_t* packed) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kPlainThreads + threadIdx.x;
  if (thread >= blocks.count) return;
  const std::int64_t block = blocks.block_of(thread);
  float x[64];
  cuda::load_block<T>(blocks, block, x);
  for (int i = 0; i < 64; ++i) x[i] = x[i] - params.offset;
  pack_block(params.form, x, packed + block * params.form.bytes);
}

template <class T>
__global__ __launch_bounds__(kPlainThreads) void unpack_plain_kernel(
    const __grid_constant__ AnyBlocks blocks, const __grid_constant__ Params params,
    const std::uint8_t* packed) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kPlainThreads + threadIdx.x;
  if (thread >= blocks.count) return;
  const std::int64_t block = blocks.block_of(thread);
  float x[64];
  unpack_block(params.form, packed + block * params.form.bytes, x);
  for (int i = 0; i < 64; ++i) x[i] = finished(x[i], params.offset, params.clamp);
  cuda::store_block<T>(blocks, block, x);
}

// ---- calls --------------------------------------------------------------------------------------

// Calls visit with the number of coded tiles.
template <class Visit>
void with_tiles(const Form& form, Visit&& visit) {
  switch (form.tiles) {
    case 6: return visit.template operator()<6>();
    case 8: return visit.template operator()<8>();
    case 10: return visit.template operator()<10>();
    case 12: return visit.template operator()<12>();
    case 14: return visit.template operator()<14>();
    default: return visit.template operator()<16>();
  }
}
// And whether to take the kernel of f32 alone.
template <class Visit>
void with_kernel(const Form& form, DType dtype, Visit&& visit) {
  with_tiles(form, [&]<int kTiles>() {
    if constexpr (has_f32_kernel(kTiles)) {
      if (dtype == DType::F32) return visit.template operator()<kTiles, true>();
    }
    visit.template operator()<kTiles, false>();
  });
}

bool takes_fast(const View& view, const Blocks& b, const Params& p) {
  return p.form.bytes <= kMaxFastBytes && WholeBlocks::suits(view, b);
}

FastArgs args_of(const View& view, const Blocks& b, const Params& p, std::uint8_t* packed,
                 int slot_bytes) {
  const auto bytes = static_cast<std::uint32_t>(p.form.bytes);
  return {.blocks = WholeBlocks::of(view, b),
          .dtype = view.dtype,
          .params = p,
          .packed = packed,
          .slot_bytes = slot_bytes,
          .per_byte = ((1u << 20) + bytes - 1) / bytes};
}

// Slots of an odd number of words start in different banks.
int pack_slot_bytes(const Form& form) { return 4 * ((form.bytes / 4 + kSlackWords) | 1); }

// Whether the kernels for planes take the tensor, which is then under way.
template <bool kPack, class Pointer>
bool run_planes(const BasicTensorView<Pointer>& tensor, const Blocks& b, const Params& p,
                std::uint8_t* packed, void* stream) {
  if (p.form.bytes > kMaxFastBytes) return false;
  const auto blocks = cuda::PlaneBlocks::of(tensor, b);
  if (!blocks) return false;
  const cuda::BlockDeal deal = cuda::BlockDeal::of(*blocks, kPlaneThreads);
  const std::size_t staged = cuda::staged_bytes(*blocks, deal.run);
  const PlaneArgs args{.blocks = *blocks,
                       .deal = deal,
                       .params = p,
                       .packed = packed,
                       .slot_bytes = pack_slot_bytes(p.form),
                       .slots_from = static_cast<std::uint32_t>(staged)};
  const int slots = kPack ? kPlaneThreads * args.slot_bytes
                          : kPlaneThreads / cuda::kWarp * plane_warp_bytes(p.form);
  const cuda::Grid grid{.blocks = deal.ctas(),
                        .threads = kPlaneThreads,
                        .shared_bytes = staged + static_cast<std::size_t>(slots)};
  with_kernel(p.form, tensor.dtype, [&]<int kTiles, bool kF32>() {
    cuda::launch(kPack ? pack_planes_kernel<kTiles, kF32> : unpack_planes_kernel<kTiles, kF32>,
                 grid, stream, args);
  });
  return true;
}

Blocks blocks_of(const Shape& shape) { return Blocks::of("dct_quant", 8, shape, "block_quant"); }

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  if (out.empty()) return 0;
  const Params p = Params::of(stage);
  const Blocks b = blocks_of(in.shape);
  const View view = View::of(in);
  auto* packed = reinterpret_cast<std::uint8_t*>(out.data());
  if (takes_fast(view, b, p)) {
    const FastArgs args = args_of(view, b, p, packed, pack_slot_bytes(p.form));
    const cuda::Grid grid{.blocks = cuda::blocks_for(args.blocks.count, kPackThreads),
                          .threads = kPackThreads,
                          .shared_bytes = static_cast<std::size_t>(kPackThreads) * args.slot_bytes};
    with_kernel(p.form, view.dtype, [&]<int kTiles, bool kF32>() {
      cuda::launch(pack_fast_kernel<kTiles, kF32>, grid, run.stream, args);
    });
    return out.size();
  }
  if (run_planes<true>(in, b, p, packed, run.stream)) return out.size();
  const AnyBlocks any = AnyBlocks::of(view, b);
  cuda::with_element(view.dtype, [&](auto element) {
    cuda::launch(pack_plain_kernel<decltype(element)>,
                 {.blocks = cuda::blocks_for(any.count, kPlainThreads), .threads = kPlainThreads},
                 run.stream, any, p, packed);
  });
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  if (packed.empty()) return;
  const Params p = Params::of(stage);
  const Blocks b = blocks_of(out.shape);
  const View view = View::of(out);
  const auto* from = reinterpret_cast<const std::uint8_t*>(packed.data());
  if (takes_fast(view, b, p)) {
    const FastArgs args = args_of(view, b, p, const_cast<std::uint8_t*>(from), 0);
    constexpr int kWarps = kUnpackThreads / cuda::kWarp;
    const int warp_bytes = unpack_warp_bytes(p.form);
    const cuda::Grid grid{.blocks = cuda::blocks_for(args.blocks.count, kUnpackThreads),
                          .threads = kUnpackThreads,
                          .shared_bytes = static_cast<std::size_t>(kWarps * warp_bytes)};
    with_kernel(p.form, view.dtype, [&]<int kTiles, bool kF32>() {
      cuda::launch(unpack_fast_kernel<kTiles, kF32>, grid, run.stream, args);
    });
    return;
  }
  if (run_planes<false>(out, b, p, const_cast<std::uint8_t*>(from), run.stream)) return;
  const AnyBlocks any = AnyBlocks::of(view, b);
  cuda::with_element(view.dtype, [&](auto element) {
    cuda::launch(unpack_plain_kernel<decltype(element)>,
                 {.blocks = cuda::blocks_for(any.count, kPlainThreads), .threads = kPlainThreads},
                 run.stream, any, p, from);
  });
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::dct_quant
