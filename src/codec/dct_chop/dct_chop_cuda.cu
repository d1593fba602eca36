// dct_chop on CUDA: which kernel takes which tensor, and the one that takes any.
#include <algorithm>
#include <array>
#include <utility>

#include "codec/dct_chop/dct_chop.h"
#include "codec/dct_chop/dct_chop_channels_cuda.cuh"
#include "codec/dct_chop/dct_chop_cuda.cuh"
#include "codec/dct_chop/dct_chop_lanes_cuda.cuh"
#include "codec/dct_chop/dct_chop_planes_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::dct_chop {
namespace {

constexpr int kAnyThreads = 128;  // of the kernels that take any tensor

using cuda::AnyBlocks;
using cuda::View;
using cuda::WholeBlocks;

StoredCoefs stored_of(const Params& p, const Blocks& b, const void* data) {
  return {.data = const_cast<void*>(data),
          .triangle = p.triangle,
          .planes = p.planes,
          .blocks = b.all_block_rows() * b.block_cols,
          .row_values = b.block_cols * p.keep};
}

// ---- any block, dtype, strides and edges, by the normative functions ----------------------------

// The place of coefficient (u, v) of a block.
__device__ std::int64_t place_of(const StoredCoefs& s, const AnyBlocks& b, int keep,
                                 std::int64_t block, int u, int v) {
  const int number = s.triangle ? u * keep - u * (u - 1) / 2 + v : u * keep + v;
  if (s.planes) return number * s.blocks + block;
  if (s.triangle) return block * (keep * (keep + 1) / 2) + number;
  const std::int64_t block_row = block / b.block_cols, col = block % b.block_cols;
  return (block_row * keep + u) * s.row_values + col * keep + v;
}

__device__ float stored_value(const StoredCoefs& s, DType coef, std::int64_t place) {
  switch (coef) {
    case DType::F16: return to_float(static_cast<const F16*>(s.data)[place]);
    case DType::BF16: return to_float(static_cast<const BF16*>(s.data)[place]);
    default: return static_cast<const float*>(s.data)[place];
  }
}
__device__ void store_value(const StoredCoefs& s, DType coef, std::int64_t place, float value) {
  switch (coef) {
    case DType::F16: static_cast<F16*>(s.data)[place] = to_f16_saturated(value); break;
    case DType::BF16: static_cast<BF16*>(s.data)[place] = to_bf16_saturated(value); break;
    default: static_cast<float*>(s.data)[place] = value;
  }
}

template <class T, int N>
__global__ void pack_any(const __grid_constant__ AnyBlocks in,
                         const __grid_constant__ StoredCoefs out,
                         const __grid_constant__ Table<N> table, int keep, DType coef) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kAnyThreads + threadIdx.x;
  if (thread >= in.count) return;
  const std::int64_t block = in.block_of(thread);
  float x[N * N], coefs[N * N];
  cuda::load_block<T, N>(in, block, x);
  forward_block<N>(table, keep, x, N, coefs);
  for (int u = 0; u < keep; ++u) {
    for (int v = 0; v < (out.triangle ? keep - u : keep); ++v) {
      store_value(out, coef, place_of(out, in, keep, block, u, v), coefs[u * keep + v]);
    }
  }
}

template <class T, int N>
__global__ void unpack_any(const __grid_constant__ AnyBlocks out,
                           const __grid_constant__ StoredCoefs in,
                           const __grid_constant__ Table<N> table, int keep, DType coef) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kAnyThreads + threadIdx.x;
  if (thread >= out.count) return;
  const std::int64_t block = out.block_of(thread);
  float x[N * N], coefs[N * N];
  for (int u = 0; u < keep; ++u) {
    for (int v = 0; v < keep; ++v) {
      const bool kept = !in.triangle || u + v < keep;
      coefs[u * keep + v] =
          kept ? stored_value(in, coef, place_of(in, out, keep, block, u, v)) : 0.0f;
    }
  }
  inverse_block<N>(table, keep, coefs, x, N);
  cuda::store_block<T, N>(out, block, x);
}

// ---- which kernel -------------------------------------------------------------------------------

using WholeKernel = void (*)(WholeBlocks, StoredCoefs, Deal);

template <class T, class Coef, int... K>
WholeKernel pack_kernel(int keep, std::integer_sequence<int, K...>) {
  constexpr std::array<WholeKernel, 8> kKernels = {pack_whole<T, Coef, K + 1>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}
template <class T, class Coef, Order kOrder, int... K>
WholeKernel unpack_kernel(int keep, std::integer_sequence<int, K...>) {
  constexpr std::array<WholeKernel, 8> kKernels = {unpack_whole<T, Coef, K + 1, kOrder>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}

// The kernel for a pair of types, null where there is none. Orders other than rows have fewer.
template <bool kPack>
WholeKernel whole_kernel(DType dtype, const Params& p) {
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  const Order order = p.planes ? Order::Planes : p.triangle ? Order::Triangles : Order::Rows;
  const auto of = [&]<class T, class Coef, bool kAllOrders>() -> WholeKernel {
    if constexpr (kPack) {
      return pack_kernel<T, Coef>(p.keep, kKeeps);
    } else if constexpr (kAllOrders) {
      return order == Order::Rows        ? unpack_kernel<T, Coef, Order::Rows>(p.keep, kKeeps)
             : order == Order::Triangles ? unpack_kernel<T, Coef, Order::Triangles>(p.keep, kKeeps)
                                         : unpack_kernel<T, Coef, Order::Planes>(p.keep, kKeeps);
    } else {
      return order == Order::Rows ? unpack_kernel<T, Coef, Order::Rows>(p.keep, kKeeps) : nullptr;
    }
  };
  const auto is = [&](DType a, DType b) { return dtype == a && p.coef == b; };
  if (is(DType::F32, DType::F32)) return of.template operator()<float, float, true>();
  if (is(DType::F32, DType::F16)) return of.template operator()<float, F16, false>();
  if (is(DType::F32, DType::BF16)) return of.template operator()<float, BF16, false>();
  if (is(DType::F16, DType::F16)) return of.template operator()<F16, F16, false>();
  if (is(DType::BF16, DType::BF16)) return of.template operator()<BF16, BF16, true>();
  if (is(DType::F16, DType::F32)) return of.template operator()<F16, float, false>();
  if (is(DType::BF16, DType::F32)) return of.template operator()<BF16, float, false>();
  return nullptr;
}

template <bool kPack, int N>
void run_any(const Params& p, const Table<N>& table, const AnyBlocks& blocks,
             const StoredCoefs& stored, void* stream) {
  cuda::with_element(blocks.view.dtype, [&](auto element) {
    using T = decltype(element);
    const cuda::Grid grid{cuda::blocks_for(blocks.count, kAnyThreads), kAnyThreads};
    if constexpr (kPack) {
      cuda::launch(pack_any<T, N>, grid, stream, blocks, stored, table, p.keep, p.coef);
    } else {
      cuda::launch(unpack_any<T, N>, grid, stream, blocks, stored, table, p.keep, p.coef);
    }
  });
}

// ---- small tensors ------------------------------------------------------------------------------

bool is_small(const View& view, const Blocks& b) {
  return WholeBlocks::suits(view, b) &&
         b.all_block_rows() * b.block_cols <= kSmallBlocks * cuda::device().sms;
}

// Collects small tensors of one dtype, and launches them together.
template <bool kPack, int kMost>
class SmallTensors {
 public:
  SmallTensors(const Params& p, void* stream) : keep_(p.keep), stream_(stream) {
    tensors_.coef = p.coef;
    tensors_.triangle = p.triangle;
    tensors_.planes = p.planes;
  }

  void add(const View& view, const Blocks& b, const void* packed) {
    if (tensors_.count == kMost || (tensors_.count > 0 && tensors_.dtype != view.dtype)) launch();
    tensors_.dtype = view.dtype;
    const std::int64_t blocks = b.all_block_rows() * b.block_cols;
    tensors_.tensors[tensors_.count++] = {.data = view.data,
                                          .stored = const_cast<void*>(packed),
                                          .first_cta = static_cast<std::uint32_t>(ctas_),
                                          .blocks = static_cast<std::uint32_t>(blocks),
                                          .block_cols = static_cast<std::uint32_t>(b.block_cols)};
    ctas_ += cuda::blocks_for(blocks, kLaneBlocks);
  }

  void launch() {
    if (tensors_.count == 0) return;
    constexpr std::make_integer_sequence<int, 8> kKeeps;
    const bool f32 = tensors_.dtype == DType::F32 && tensors_.coef == DType::F32;
    cuda::launch(f32 ? kernel<true>(kKeeps) : kernel<false>(kKeeps),
                 {.blocks = ctas_, .threads = kLaneThreads, .early = true}, stream_, tensors_);
    tensors_.count = 0;
    ctas_ = 0;
  }

 private:
  template <bool kF32, int... K>
  auto kernel(std::integer_sequence<int, K...>) const {
    using Kernel = void (*)(LaneTensors<kMost>);
    constexpr std::array<Kernel, 8> kPackKernels = {pack_lanes<K + 1, kMost, kF32>...};
    constexpr std::array<Kernel, 8> kUnpackKernels = {unpack_lanes<K + 1, kMost, kF32>...};
    return (kPack ? kPackKernels : kUnpackKernels)[static_cast<std::size_t>(keep_ - 1)];
  }

  int keep_;
  void* stream_;
  LaneTensors<kMost> tensors_{};
  std::int64_t ctas_ = 0;
};

// ---- any tensor ---------------------------------------------------------------------------------

// Prefetched into L2: f16 and bf16 pack a tenth faster, f32 no slower.
constexpr std::int64_t kRowsAhead = 4 << 20;

// Collects tensors for the kernels for planes, and launches them together.
template <bool kPack, int kMost>
class Planes {
 public:
  Planes(const Params& p, void* stream) : params_(p), stream_(stream) {}

  // Whether those kernels take the tensor.
  template <class Pointer>
  bool add(const BasicTensorView<Pointer>& tensor, const Blocks& b, const StoredCoefs& stored) {
    auto blocks = cuda::PlaneBlocks::of(tensor, b);
    if (!blocks) return false;
    if (kPack && kMost == 1) blocks->ahead = kRowsAhead;
    // By frequencies fewer lanes leave longer runs, and loads are of whole sectors still.
    const auto size = static_cast<std::uint32_t>(size_bytes(blocks->dtype));
    const cuda::BlockDeal deal =
        cuda::BlockDeal::of(*blocks, kPlaneThreads, params_.planes ? 32 / size : cuda::kWarp);
    constexpr std::int64_t kMostCtas = 0x7fffffff;
    if (table_.count == kMost || ctas_ + deal.ctas() > kMostCtas) launch();
    const std::size_t slots = std::max<std::size_t>(kPlaneThreads, deal.slots());
    const std::size_t tile =
        sizeof(float) * slots * static_cast<std::size_t>(params_.keep * params_.keep | 1);
    shared_bytes_ = std::max({shared_bytes_, tile, cuda::staged_bytes(*blocks, deal.run)});
    table_.tensors[table_.count++] = {.blocks = *blocks,
                                      .deal = deal,
                                      .stored = stored,
                                      .coef = params_.coef,
                                      .first_cta = static_cast<std::uint32_t>(ctas_)};
    ctas_ += deal.ctas();
    return true;
  }

  void launch() {
    if (table_.count == 0) return;
    constexpr std::make_integer_sequence<int, 8> kKeeps;
    const auto run = [&]<cuda::Walks kWalks>() {
      cuda::launch(
          kernel<kWalks>(kKeeps),
          {.blocks = ctas_, .threads = kPlaneThreads, .shared_bytes = shared_bytes_, .early = true},
          stream_, table_);
    };
    if constexpr (kMost > 1) {
      run.template operator()<cuda::Walks::Any>();
    } else {
      table_.tensors[0].blocks.walk == cuda::Walk::Staged
          ? run.template operator()<cuda::Walks::Staged>()
          : run.template operator()<cuda::Walks::Direct>();
    }
    table_.count = 0;
    ctas_ = 0;
    shared_bytes_ = 0;
  }

 private:
  template <cuda::Walks kWalks, int... K>
  auto kernel(std::integer_sequence<int, K...>) const {
    using Kernel = void (*)(PlaneTable<kMost>);
    constexpr std::array<Kernel, 8> kPackKernels = {pack_planes<K + 1, kWalks, kMost>...};
    constexpr std::array<Kernel, 8> kUnpackKernels = {unpack_planes<K + 1, kWalks, kMost>...};
    return (kPack ? kPackKernels : kUnpackKernels)[static_cast<std::size_t>(params_.keep - 1)];
  }

  Params params_;
  void* stream_;
  PlaneTable<kMost> table_{};
  std::int64_t ctas_ = 0;
  std::size_t shared_bytes_ = 0;
};

// Whether the kernels for planes take the tensor, which is then under way.
template <bool kPack, class Pointer>
bool run_planes(const Params& p, const BasicTensorView<Pointer>& tensor, const Blocks& b,
                const StoredCoefs& stored, void* stream) {
  Planes<kPack, 1> one(p, stream);
  if (!one.add(tensor, b, stored)) return false;
  one.launch();
  return true;
}

// Whether the kernel for channels last takes the tensor, which is then under way.
bool pack_in_channels(const Params& p, const ConstTensorView& tensor, const Blocks& b,
                      const StoredCoefs& stored, void* stream) {
  if (!takes_channels(p.keep) || p.coef != DType::F32) return false;
  const auto blocks = cuda::PlaneBlocks::of(tensor, b);
  if (!blocks) return false;
  const auto args = ChopChannels::of(*blocks, stored);
  if (!args) return false;
  cuda::launch(p.keep == 2 ? pack_channels<2> : pack_channels<4>,
               {.blocks = cuda::blocks_for(args->warps, kChopChannelThreads / cuda::kWarp),
                .threads = kChopChannelThreads,
                .early = true},
               stream, *args);
  return true;
}

template <bool kPack, class Pointer>
void run_all(const Params& p, const BasicTensorView<Pointer>& tensor, const void* packed,
             void* stream) {
  const View view = View::of(tensor);
  const Blocks b = blocks_of(p, tensor.shape);
  if (is_small(view, b)) {
    SmallTensors<kPack, 1> one(p, stream);
    one.add(view, b, packed);
    return one.launch();
  }
  const StoredCoefs stored = stored_of(p, b, packed);
  const WholeKernel kernel =
      WholeBlocks::suits(view, b) ? whole_kernel<kPack>(view.dtype, p) : nullptr;
  if (kernel != nullptr) {
    const WholeBlocks blocks = WholeBlocks::of(view, b);
    constexpr int kThreads = kPack ? kPackThreads : kUnpackThreads;
    const std::size_t row_bytes = static_cast<std::size_t>(p.keep) * size_bytes(p.coef);
    const bool at_once =
        row_bytes == 4 || row_bytes == 8 || row_bytes == 16 || (!kPack && row_bytes == 32);
    const bool staged = !p.planes && !p.triangle && !at_once;
    const Deal deal = staged ? Deal::of(blocks.block_cols, kThreads) : Deal{kThreads, false};
    std::size_t shared_bytes = 0;
    if (!kPack)
      shared_bytes = occupancy_limit_bytes(blocks, size_bytes(view.dtype), staged, p.keep);
    cuda::launch(kernel,
                 {.blocks = cuda::blocks_for(blocks.count, deal.each),
                  .threads = kThreads,
                  .shared_bytes = shared_bytes,
                  .early = true},
                 stream, blocks, stored, deal);
    return;
  }
  if constexpr (kPack) {
    if (pack_in_channels(p, tensor, b, stored, stream)) return;
  }
  if (run_planes<kPack>(p, tensor, b, stored, stream)) return;
  const AnyBlocks blocks = AnyBlocks::of(view, b);
  if (p.transform == Transform::Zfp) {
    run_any<kPack, 4>(p, kPack ? kZfpForward : kZfpInverse, blocks, stored, stream);
  } else if (p.block == 4) {
    run_any<kPack, 4>(p, kDct<4>, blocks, stored, stream);
  } else if (p.block == 8) {
    run_any<kPack, 8>(p, kDct<8>, blocks, stored, stream);
  } else {
    run_any<kPack, 16>(p, kDct<16>, blocks, stored, stream);
  }
}

// Tensors of more bytes fill the device alone, in kernels that are made for them.
constexpr std::int64_t kMostBytesTogether = 16 << 20;

template <bool kPack, class Tensor, class Bytes>
void run_many(const Params& p, std::span<const Tensor> tensors, std::span<const Bytes> packed,
              void* stream) {
  SmallTensors<kPack, kMostLaneTensors> small(p, stream);
  const auto each = [&](auto&& body) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (packed[i].empty() || tensors[i].shape.elems() == 0) continue;
      body(tensors[i], View::of(tensors[i]), blocks_of(p, tensors[i].shape), packed[i].data());
    }
  };
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {  // a launch has one
    each([&](const Tensor&, const View& view, const Blocks& b, const std::byte* at) {
      if (view.dtype == dtype && is_small(view, b)) small.add(view, b, at);
    });
  }
  small.launch();
  Planes<kPack, kMostPlanes> together(p, stream);
  each([&](const Tensor& tensor, const View& view, const Blocks& b, const std::byte* at) {
    if (is_small(view, b)) return;
    const std::int64_t bytes = view.elems * static_cast<std::int64_t>(size_bytes(view.dtype));
    const bool added = bytes <= kMostBytesTogether && together.add(tensor, b, stored_of(p, b, at));
    if (!added) run_all<kPack>(p, tensor, at, stream);
  });
  together.launch();
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  if (!out.empty()) {
    run_all<true>(Params::of(stage), in, out.data(), run.stream);
  }
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  if (!packed.empty()) {
    run_all<false>(Params::of(stage), out, packed.data(), run.stream);
  }
}

void pack_cuda_many(const Stage& stage, std::span<const ConstTensorView> in,
                    std::span<const std::span<std::byte>> out, CudaContext run) {
  run_many<true>(Params::of(stage), in, out, run.stream);
}

void unpack_cuda_many(const Stage& stage, std::span<const std::span<const std::byte>> packed,
                      std::span<const TensorView> out, CudaContext run) {
  run_many<false>(Params::of(stage), out, packed, run.stream);
}

const CudaCodec kCuda = {.pack = pack_cuda,
                         .unpack = unpack_cuda,
                         .pack_many = pack_cuda_many,
                         .unpack_many = unpack_cuda_many};

}  // namespace tuckfold::dct_chop
