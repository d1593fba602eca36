// block_quant on CUDA: one kernel per call, or one for many tensors of a dtype. Dense tensors of
// f32, f16 and bf16 have fast kernels; packing is fastest if a tile holds groups of a power of two.
#include <bit>

#include "base/cuda/runtime.h"
#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_tiles_cuda.cuh"
#include "codec/block_quant/block_quant_unpack_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::block_quant {
namespace {

using cuda::View;

constexpr int kUsualShift = 8;  // groups of 256 have a kernel of their own

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }

Settings settings_of(const Params& p, const CudaContext& run = {}) {
  const bool power = is_power_of_two(p.group);
  return {.group = p.group,
          .seed = run.seed,
          .device_seed = run.device_seed,
          .bits = p.bits,
          .group_shift = power ? std::countr_zero(static_cast<std::uint64_t>(p.group)) : -1,
          .exact_zero = p.exact_zero};
}

DenseTensor tensor_of(const Params& p, const View& view, const std::byte* packed,
                      std::size_t number) {
  auto* codes = const_cast<std::byte*>(packed);
  return {.data = view.data,
          .codes = codes,
          .headers = codes + sizes_of(p, view.elems).codes_bytes,
          .elems = view.elems,
          .first_cta = 0,
          .number = static_cast<std::uint32_t>(number)};
}

// Whether values are contiguous and a 16-byte vector holds more than one.
bool is_fast(const View& view) {
  return view.dense() &&
         (view.dtype == DType::F32 || view.dtype == DType::F16 || view.dtype == DType::BF16);
}

// Calls body with a value of the type, for tensors that are fast.
template <class Body>
void with_fast_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    default: return body(float{});
  }
}

// ---- how a launch runs --------------------------------------------------------------------------

// The steps of the tiles that suit the groups; 0: none do.
template <class T>
int tile_steps(const Settings& s) {
  if (s.group_shift < 0 || (s.bits == 1 && s.exact_zero)) return 0;
  if (s.group > kTileValues<T, kSteps>) return 0;
  return s.group * kWarp >= kTileValues<T, kSteps> ? kSteps : kSmallSteps;
}

template <class T, bool kStochastic, int kMost>
struct Pack {
  static bool takes(const View&) { return true; }

  static std::int64_t ctas(const Settings& s, const DenseTensor& tensor) {
    const auto groups = [&](std::int64_t values) { return cuda::blocks_for(values, s.group); };
    const auto of_tiles = [&]<int kTileSteps>() {
      const std::int64_t tiles = tiles_of<T, kTileSteps>(tensor);
      return tiles + groups(tensor.elems - tiles * kTileValues<T, kTileSteps>);
    };
    const int steps = tile_steps<T>(s);
    const std::int64_t warps = steps == kSteps        ? of_tiles.template operator()<kSteps>()
                               : steps == kSmallSteps ? of_tiles.template operator()<kSmallSteps>()
                                                      : groups(tensor.elems);
    return cuda::blocks_for(warps, kPackWarps);
  }

  static void launch(const Tensors<kMost>& tensors, std::int64_t ctas, void* stream) {
    const cuda::Grid grid{.blocks = ctas, .threads = kPackThreads, .early = true};
    const int steps = tile_steps<T>(tensors.settings);
    const auto run = [&](auto kernel) { cuda::launch(kernel, grid, stream, tensors); };
    if (steps == 0) return run(pack_groups_kernel<T, kStochastic, kMost>);
    if (steps == kSmallSteps) {
      return run(pack_tiles_kernel<T, kStochastic, 0, kSmallSteps, kMost>);
    }
    if constexpr (kMost == 1) {
      if (tensors.settings.group_shift == kUsualShift) {
        return run(pack_tiles_kernel<T, kStochastic, kUsualShift, kSteps, kMost>);
      }
    }
    run(pack_tiles_kernel<T, kStochastic, 0, kSteps, kMost>);
  }
};

// Calls body with the number of bits, known only at run time, as a template argument.
template <class Body>
void with_bits(int bits, Body&& body) {
  switch (bits) {
    case 1: return body.template operator()<1>();
    case 2: return body.template operator()<2>();
    case 3: return body.template operator()<3>();
    case 4: return body.template operator()<4>();
    case 5: return body.template operator()<5>();
    case 6: return body.template operator()<6>();
    case 7: return body.template operator()<7>();
    default: return body.template operator()<8>();
  }
}

template <class T, int kMost>
struct Unpack {
  static std::int64_t ctas(const Settings&, const DenseTensor& tensor) {
    return cuda::blocks_for(cuda::blocks_for(tensor.elems, kTile), kUnpackWarps);
  }

  // Unused shared memory that limits the number of blocks on a multiprocessor: memory is faster
  // with few writers at a time. If a tile of f32 takes few instructions, half as many blocks are
  // enough once their input is in the L2 cache. The first kTilesAhead tiles are not prefetched, so
  // there must be many more. On an H200, with 228 KB of shared memory on a multiprocessor, 33000
  // bytes allow 6 blocks, 50000 allow 4 and 100000 allow 2.
  static std::size_t occupancy_limit_bytes(const Settings& s, std::int64_t ctas) {
    if (sizeof(T) == 2) return 33000;
    const bool quick = (s.bits == 2 || s.bits == 4 || s.bits == 8) && s.group_shift >= 0;
    return quick && ctas * kUnpackWarps >= 32 * kTilesAhead ? 100000 : 50000;
  }

  static bool takes(const View& view) { return view.dense(16); }

  static void launch(const Tensors<kMost>& tensors, std::int64_t ctas, void* stream) {
    const cuda::Grid grid{.blocks = ctas,
                          .threads = kUnpackThreads,
                          .shared_bytes = occupancy_limit_bytes(tensors.settings, ctas),
                          .early = true};
    with_bits(tensors.settings.bits, [&]<int kBits>() {
      cuda::launch(unpack_tiles_kernel<T, kBits, kMost>, grid, stream, tensors);
    });
  }
};

// Collects fast tensors of one dtype, and launches them together.
template <class Way, int kMost>
class Together {
 public:
  Together(const Settings& settings, void* stream) : stream_(stream) {
    tensors_.settings = settings;
  }

  void add(DenseTensor tensor) {
    constexpr std::int64_t kMostCtas = 0x7fffffff;
    const std::int64_t more = Way::ctas(tensors_.settings, tensor);
    if (tensors_.count == kMost || ctas_ + more > kMostCtas) launch();
    tensor.first_cta = static_cast<std::uint32_t>(ctas_);
    tensors_.tensors[tensors_.count++] = tensor;
    ctas_ += more;
  }

  void launch() {
    if (tensors_.count == 0) return;
    Way::launch(tensors_, ctas_, stream_);
    tensors_.count = 0;
    ctas_ = 0;
  }

 private:
  Tensors<kMost> tensors_{};
  std::int64_t ctas_ = 0;
  void* stream_;
};

// ---- one tensor, or many ------------------------------------------------------------------------

void pack_any(const Params& p, const Settings& s, const View& view, const DenseTensor& tensor,
              void* stream) {
  const std::int64_t groups = cuda::blocks_for(view.elems, p.group);
  const cuda::Grid grid{
      .blocks = cuda::blocks_for(groups, kPackWarps), .threads = kPackThreads, .early = true};
  cuda::with_element(view.dtype, [&]<class T>(T) {
    p.stochastic ? cuda::launch(pack_any_kernel<T, true>, grid, stream, view, tensor, s)
                 : cuda::launch(pack_any_kernel<T, false>, grid, stream, view, tensor, s);
  });
}

void unpack_any(const Settings& s, const View& view, const DenseTensor& tensor, void* stream) {
  const cuda::Grid grid{.blocks = cuda::blocks_for(view.elems, kUnpackThreads),
                        .threads = kUnpackThreads,
                        .early = true};
  cuda::with_element(view.dtype, [&]<class T>(T) {
    cuda::launch(unpack_any_kernel<T>, grid, stream, view, tensor, s);
  });
}

void unpack_skewed(const Settings& s, const View& view, const DenseTensor& tensor, void* stream) {
  const std::int64_t tiles = cuda::blocks_for(view.elems, kTile);
  const cuda::Grid grid{
      .blocks = cuda::blocks_for(tiles, kUnpackWarps), .threads = kUnpackThreads, .early = true};
  Tensors<1> one{};
  one.tensors[0] = tensor;
  one.count = 1;
  one.settings = s;
  with_fast_element(view.dtype, [&]<class T>(T) {
    with_bits(s.bits, [&]<int kBits>() {
      cuda::launch(unpack_skewed_kernel<T, kBits>, grid, stream, one);
    });
  });
}

// The fast tensors of a dtype at a time; `slow` takes each of the others.
template <template <class T> class Way, int kMost, class Tensor, class Bytes, class Slow>
void run_all(const Params& p, const Settings& settings, std::span<const Tensor> tensors,
             std::span<const Bytes> packed, void* stream, Slow&& slow) {
  const auto each = [&](auto&& body) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].shape.elems() == 0) continue;
      const View view = View::of(tensors[i]);
      body(view, tensor_of(p, view, packed[i].data(), i));
    }
  };
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    with_fast_element(dtype, [&]<class T>(T) {
      Together<Way<T>, kMost> together(settings, stream);
      each([&](const View& view, const DenseTensor& tensor) {
        if (view.dtype == dtype && is_fast(view) && Way<T>::takes(view)) together.add(tensor);
      });
      together.launch();
    });
  }
  each([&](const View& view, const DenseTensor& tensor) {
    if (!is_fast(view) || !Way<float>::takes(view)) slow(view, tensor);
  });
}

template <int kMost, bool kStochastic>
struct PackWay {
  template <class T>
  using Of = Pack<T, kStochastic, kMost>;
};
template <int kMost>
struct UnpackWay {
  template <class T>
  using Of = Unpack<T, kMost>;
};

template <int kMost>
void pack_tensors(const Stage& stage, std::span<const ConstTensorView> in,
                  std::span<const std::span<std::byte>> out, const CudaContext& run) {
  const Params p = Params::of(stage);
  const Settings settings = settings_of(p, run);
  const auto slow = [&](const View& view, const DenseTensor& tensor) {
    pack_any(p, settings, view, tensor, run.stream);
  };
  p.stochastic
      ? run_all<PackWay<kMost, true>::template Of, kMost>(p, settings, in, out, run.stream, slow)
      : run_all<PackWay<kMost, false>::template Of, kMost>(p, settings, in, out, run.stream, slow);
}

template <int kMost>
void unpack_tensors(const Stage& stage, std::span<const std::span<const std::byte>> packed,
                    std::span<const TensorView> out, const CudaContext& run) {
  const Params p = Params::of(stage);
  const Settings settings = settings_of(p);
  run_all<UnpackWay<kMost>::template Of, kMost>(
      p, settings, out, packed, run.stream, [&](const View& view, const DenseTensor& tensor) {
        is_fast(view) ? unpack_skewed(settings, view, tensor, run.stream)
                      : unpack_any(settings, view, tensor, run.stream);
      });
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  pack_tensors<1>(stage, {&in, 1}, {&out, 1}, run);
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  unpack_tensors<1>(stage, {&packed, 1}, {&out, 1}, run);
}

void pack_cuda_many(const Stage& stage, std::span<const ConstTensorView> in,
                    std::span<const std::span<std::byte>> out, CudaContext run) {
  pack_tensors<kMostTensors>(stage, in, out, run);
}

void unpack_cuda_many(const Stage& stage, std::span<const std::span<const std::byte>> packed,
                      std::span<const TensorView> out, CudaContext run) {
  unpack_tensors<kMostTensors>(stage, packed, out, run);
}

const CudaCodec kCuda = {.pack = pack_cuda,
                         .unpack = unpack_cuda,
                         .pack_many = pack_cuda_many,
                         .unpack_many = unpack_cuda_many};

}  // namespace tuckfold::block_quant
