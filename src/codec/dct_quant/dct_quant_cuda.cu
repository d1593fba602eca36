// dct_quant on CUDA: at rates up to 8 by kernels that keep a block in registers, one for dense
// tensors of whole blocks and one for all others, and for many at once; higher rates, and what those
// do not take, by the normative functions, a block a thread as well.
#include <algorithm>

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

Blocks blocks_of(const Shape& shape) { return Blocks::of("dct_quant", 8, shape, "block_quant"); }

// Collects tensors for the kernels for planes, and launches them together.
template <bool kPack, int kMost>
class Planes {
 public:
  Planes(const Params& p, void* stream) : params_(p), stream_(stream) {}

  // Whether those kernels take the tensor.
  template <class Pointer>
  bool add(const BasicTensorView<Pointer>& tensor, const Blocks& b, std::uint8_t* packed) {
    if (params_.form.bytes > kMaxFastBytes) return false;
    const auto blocks = cuda::PlaneBlocks::of(tensor, b);
    if (!blocks) return false;
    constexpr std::int64_t kMostCtas = 0x7fffffff;
    const cuda::BlockDeal deal = cuda::BlockDeal::of(*blocks, kPlaneThreads);
    if (table_.count == kMost || ctas_ + deal.ctas() > kMostCtas) launch();
    const std::size_t staged = cuda::staged_bytes(*blocks, deal.run);
    const PlaneArgs args{.blocks = *blocks,
                         .deal = deal,
                         .params = params_,
                         .packed = packed,
                         .slot_bytes = pack_slot_bytes(params_.form),
                         .slots_from = static_cast<std::uint32_t>(staged),
                         .first_cta = static_cast<std::uint32_t>(ctas_)};
    const int slots = kPack ? kPlaneThreads * args.slot_bytes
                            : kPlaneThreads / cuda::kWarp * plane_warp_bytes(params_.form);
    shared_bytes_ = std::max(shared_bytes_, staged + static_cast<std::size_t>(slots));
    table_.tensors[table_.count++] = args;
    ctas_ += deal.ctas();
    return true;
  }

  void launch() {
    if (table_.count == 0) return;
    const auto run = [&]<int kTiles, bool kF32, cuda::Walks kWalks>() {
      cuda::launch(
          kPack ? pack_planes_kernel<kTiles, kF32, kWalks, kMost>
                : unpack_planes_kernel<kTiles, kF32, kWalks, kMost>,
          {.blocks = ctas_, .threads = kPlaneThreads, .shared_bytes = shared_bytes_, .early = true},
          stream_, table_);
    };
    if constexpr (kMost > 1) {
      with_tiles(params_.form,
                 [&]<int kTiles>() { run.template operator()<kTiles, false, cuda::Walks::Any>(); });
    } else {
      const cuda::PlaneBlocks& blocks = table_.tensors[0].blocks;
      with_kernel(params_.form, blocks.dtype, [&]<int kTiles, bool kF32>() {
        blocks.walk == cuda::Walk::Staged
            ? run.template operator()<kTiles, kF32, cuda::Walks::Staged>()
            : run.template operator()<kTiles, kF32, cuda::Walks::Direct>();
      });
    }
    table_.count = 0;
    ctas_ = 0;
    shared_bytes_ = 0;
  }

 private:
  Params params_;
  void* stream_;
  PlaneTable<kMost> table_{};
  std::int64_t ctas_ = 0;
  std::size_t shared_bytes_ = 0;
};

// Whether the kernels for planes take the tensor, which is then under way.
template <bool kPack, class Pointer>
bool run_planes(const BasicTensorView<Pointer>& tensor, const Blocks& b, const Params& p,
                std::uint8_t* packed, void* stream) {
  Planes<kPack, 1> one(p, stream);
  if (!one.add(tensor, b, packed)) return false;
  one.launch();
  return true;
}

// Tensors of more bytes fill the device alone, in kernels that are made for them.
constexpr std::size_t kMostBytesTogether = 16 << 20;

// All that can be in as few launches as hold them; `alone` takes each of the others.
template <bool kPack, class Tensor, class Bytes, class Alone>
void run_many(const Stage& stage, std::span<const Tensor> tensors, std::span<const Bytes> packed,
              void* stream, Alone&& alone) {
  const Params p = Params::of(stage);
  Planes<kPack, kMostPlanes> together(p, stream);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (packed[i].empty()) continue;
    const auto bytes = static_cast<std::size_t>(tensors[i].shape.elems()) *
                       static_cast<std::size_t>(size_bytes(tensors[i].dtype));
    auto* at = const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(packed[i].data()));
    if (bytes > kMostBytesTogether || !together.add(tensors[i], blocks_of(tensors[i].shape), at)) {
      alone(i);
    }
  }
  together.launch();
}

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
                          .shared_bytes = static_cast<std::size_t>(kPackThreads) * args.slot_bytes,
                          .early = true};
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
                          .shared_bytes = static_cast<std::size_t>(kWarps * warp_bytes),
                          .early = true};
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

void pack_cuda_many(const Stage& stage, std::span<const ConstTensorView> in,
                    std::span<const std::span<std::byte>> out, CudaContext run) {
  run_many<true>(stage, in, out, run.stream,
                 [&](std::size_t i) { pack_cuda(stage, in[i], out[i], run); });
}

void unpack_cuda_many(const Stage& stage, std::span<const std::span<const std::byte>> packed,
                      std::span<const TensorView> out, CudaContext run) {
  run_many<false>(stage, out, packed, run.stream,
                  [&](std::size_t i) { unpack_cuda(stage, packed[i], out[i], run); });
}

const CudaCodec kCuda = {.pack = pack_cuda,
                         .unpack = unpack_cuda,
                         .pack_many = pack_cuda_many,
                         .unpack_many = unpack_cuda_many};

}  // namespace tuckfold::dct_quant
