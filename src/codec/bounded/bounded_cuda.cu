// bounded on CUDA, codes=bits. Only the device knows how many bytes there are: pack and unpack
// synchronize to read one number, unless the caller gives a place for it
// (CudaOptions::device_result).
#include <algorithm>

#include "base/cuda/fetch.h"
#include "base/cuda/runtime.h"
#include "base/cuda/view.cuh"
#include "codec/bounded/bounded_pack_cuda.cuh"
#include "codec/bounded/bounded_range_cuda.cuh"
#include "codec/bounded/bounded_unpack_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::bounded {
namespace {

constexpr int kBeginThreads = 256, kCopyThreads = 256;

// The number of blocks for kernels with grid-stride loops.
std::int64_t few_blocks(std::int64_t work, std::int64_t each, int on_each_sm = 8) {
  return std::min<std::int64_t>(cuda::blocks_for(work, each), cuda::device().sms * on_each_sm);
}

// ---- before chunks: the grids and the initial control block

struct BeginArgs {
  DType dtype;
  double absolute, relative;
  bool exact_zero;
  const double* stored;  // the bound among packed bytes, for unpack with rel
  double* kept;          // the same, for pack
  Control* control;
  std::uint64_t* verdict;
  std::uint64_t* states;
  std::int64_t states_count;
  unsigned char* holding;  // grids_that_hold of every magnitude, for pack of f16 and bf16; or null
};

__device__ inline double bound_for(const BeginArgs& args) {
  const Control& control = *args.control;
  if (args.relative == 0) return args.absolute;
  if (args.stored != nullptr) return *args.stored;
  if (control.highest == 0) return 0;
  return bound_of(args.relative, of_key(~control.lowest), of_key(control.highest));
}

template <class Real>
__global__ void begin_kernel(const __grid_constant__ BeginArgs args) {
  cuda::allow_next_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBeginThreads + threadIdx.x;
  if (i < args.states_count) args.states[i] = 0;
  if (i != 0 && (args.holding == nullptr || i >= kMagnitudes)) return;
  double bound = bound_for(args);
  const bool hopeless = !(bound >= 0 && bound <= std::numeric_limits<double>::max());
  if (hopeless) bound = 0;
  if (args.holding != nullptr) {
    const auto bits = static_cast<std::uint16_t>(i);
    args.holding[i] = static_cast<unsigned char>(
        args.dtype == DType::F16 ? grids_that_hold(F16{bits}, bound, args.exact_zero)
                                 : grids_that_hold(BF16{bits}, bound, args.exact_zero));
  }
  if (i != 0) return;
  Control& control = *args.control;
  control.hopeless = hopeless;
  if (args.kept != nullptr) *args.kept = bound;
  for (int number = 0; number < kGrids; ++number) {
    reinterpret_cast<Grid<Real>*>(control.grids)[number] =
        grid_of<Real>(args.dtype, bound, args.exact_zero, number);
  }
  control.tickets = 0;
  *args.verdict = hopeless ? kRefused : 0;
}

// ---- a tensor that is stored as it is

// Copies to packed bytes and back. If `size` is given, copies only if it says that the packed bytes
// are the tensor's own; `verdict` receives the result.
struct CopyArgs {
  View view;
  std::byte* packed;
  std::uint64_t packed_bytes;
  const std::uint64_t* size;
  std::uint64_t* verdict;
};

template <class Word, bool kPack>
__global__ void copy_kernel(const __grid_constant__ CopyArgs args) {
  cuda::wait_for_previous_kernel();
  const std::int64_t self = static_cast<std::int64_t>(blockIdx.x) * kCopyThreads + threadIdx.x;
  if (args.size != nullptr) {
    const std::uint64_t size = *args.size;
    if (self == 0) *args.verdict = size;
    if (size != args.packed_bytes) return;
  } else if (self == 0 && args.verdict != nullptr) {
    *args.verdict = kPack ? args.packed_bytes : 0;
  }
  auto* packed = reinterpret_cast<Word*>(args.packed);
  auto* data = reinterpret_cast<Word*>(args.view.data);
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kCopyThreads;
#pragma unroll 4
  for (std::int64_t i = self; i < args.view.elems; i += threads) {
    Word& element = data[args.view.offset(i)];
    if constexpr (kPack) {
      packed[i] = element;
    } else {
      element = packed[i];
    }
  }
}

template <bool kPack>
void copy_all(const CopyArgs& args, cuda::Stream stream) {
  with_word(args.view.dtype, [&](auto word) {
    cuda::launch(copy_kernel<decltype(word), kPack>,
                 {.blocks = few_blocks(args.view.elems, 4 * kCopyThreads),
                  .threads = kCopyThreads,
                  .early = true},
                 stream, args);
  });
}

// ---- both ways

void check_codes(const Params& params) {
  if (!params.bytes) return;
  cuda::raise(Errc::Unsupported, "bounded",
              "codes=bytes runs on the CPU alone; use codes=bits, or copy the tensor there first");
}

// Sizes that follow from the tensor and the spec.
struct Sizes {
  std::int64_t chunks, parts;
  std::uint64_t bound_bytes, front_bytes;

  Sizes(const Params& params, std::int64_t elems)
      : chunks(chunks_of(elems)),
        parts((chunks + kTogether - 1) / kTogether),
        bound_bytes(params.relative != 0 ? kBoundBytes : 0),
        front_bytes(bound_bytes + static_cast<std::uint64_t>(chunks) * kHeaderBytes) {}
};

void begin(const BeginArgs& args, cuda::Stream stream) {
  const std::int64_t threads =
      std::max<std::int64_t>(args.states_count, args.holding != nullptr ? kMagnitudes : 0);
  cuda::launch(args.dtype == DType::F64 ? begin_kernel<double> : begin_kernel<float>,
               {.blocks = cuda::blocks_for(threads, kBeginThreads), .threads = kBeginThreads},
               stream, args);
}

Control* control_of(const CudaContext& run) {
  return reinterpret_cast<Control*>(run.workspace.data());
}
std::uint64_t* words_of(const CudaContext& run) {
  return reinterpret_cast<std::uint64_t*>(run.workspace.data() + kCudaControlBytes);
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const Params params = Params::of(stage);
  check_codes(params);
  const View view = View::of(in);
  if (view.elems == 0) {
    if (run.device_result != nullptr)
      cuda::fill(run.device_result, 0, sizeof(*run.device_result), run.stream);
    return 0;
  }
  const Sizes sizes(params, view.elems);
  CopyArgs as_it_is{view, out.data(), out.size(), nullptr, run.device_result};
  if (sizes.front_bytes >= out.size()) {
    copy_all<true>(as_it_is, run.stream);
    return out.size();
  }
  Control* control = control_of(run);
  std::uint64_t* verdict = run.device_result != nullptr ? run.device_result : &control->verdict;
  const cuda::DeviceLimits device = cuda::device();
  const bool halves = view.dtype == DType::F16 || view.dtype == DType::BF16;
  auto* holding =
      halves ? reinterpret_cast<unsigned char*>(words_of(run) + 2 * sizes.parts) : nullptr;
  PackArgs args{.in = view,
                .chunks = sizes.chunks,
                .tiles = 0,
                .out = out.data(),
                .out_bytes = out.size(),
                .front_bytes = sizes.front_bytes,
                .bound_bytes = sizes.bound_bytes,
                .control = control,
                .states = words_of(run),
                .holding = holding,
                .warps = 0,
                .vectors = view.dense(16)};
  cuda::with_element(view.dtype, [&](auto element) {
    using Element = decltype(element);
    const std::size_t room = WarpBuffers<Element>::kBytes;
    args.warps = std::min(
        kPackWarps<Element>,
        static_cast<int>((device.shared_bytes - sizeof(Exchange) - kHoldingBytes<Element>) / room));
    args.tiles = cuda::blocks_for(sizes.chunks, args.warps);
    if (params.relative != 0) {
      cuda::fill(control, 0, sizeof(*control), run.stream);
      const std::int64_t each = kRangeThreads * kRangeVectors * Stage16<Element>::kTogetherValues;
      cuda::launch(range_kernel<Element>,
                   {.blocks = few_blocks(view.elems, each, kRangeBlocks), .threads = kRangeThreads},
                   run.stream, args);
    }
    begin({.dtype = view.dtype,
           .absolute = params.absolute,
           .relative = params.relative,
           .exact_zero = params.exact_zero,
           .stored = nullptr,
           .kept = params.relative != 0 ? reinterpret_cast<double*>(out.data()) : nullptr,
           .control = control,
           .verdict = verdict,
           .states = args.states,
           .states_count = args.tiles,
           .holding = holding},
          run.stream);
    cuda::launch(
        params.exact_zero ? pack_kernel<Element, true> : pack_kernel<Element, false>,
        {.blocks = std::min<std::int64_t>(args.tiles, device.sms),
         .threads = (args.warps + 1) * kWarp,
         .shared_bytes = static_cast<std::size_t>(args.warps) * room + kHoldingBytes<Element>,
         .early = true},
        run.stream, args);
  });
  as_it_is.size = &control->size;
  as_it_is.verdict = verdict;
  copy_all<true>(as_it_is, run.stream);
  if (run.device_result != nullptr || cuda::is_capturing(run.stream)) return out.size();
  return cuda::fetch(verdict, run.stream);
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  const Params params = Params::of(stage);
  check_codes(params);
  const View view = View::of(out);
  const auto corrupt = [](const char* what) { cuda::raise(Errc::CorruptData, "bounded", what); };
  const std::size_t tensor_bytes = static_cast<std::size_t>(view.elems) * size_bytes(view.dtype);
  if (view.elems == 0) {
    if (!packed.empty()) corrupt("an empty tensor has no bytes");
    if (run.device_result != nullptr)
      cuda::fill(run.device_result, 0, sizeof(*run.device_result), run.stream);
    return;
  }
  if (packed.size() == tensor_bytes) {
    if (view.dense()) {
      if (run.device_result != nullptr)
        cuda::fill(run.device_result, 0, sizeof(*run.device_result), run.stream);
      return cuda::copy(view.data, packed.data(), packed.size(), run.stream);
    }
    return copy_all<false>(
        {view, const_cast<std::byte*>(packed.data()), packed.size(), nullptr, run.device_result},
        run.stream);
  }
  const Sizes sizes(params, view.elems);
  if (packed.size() < sizes.front_bytes) corrupt("there are fewer bytes than its headers take");
  Control* control = control_of(run);
  const UnpackArgs args{
      .out = view,
      .chunks = sizes.chunks,
      .packed = packed.data(),
      .packed_bytes = packed.size(),
      .front_bytes = sizes.front_bytes,
      .bound_bytes = sizes.bound_bytes,
      .control = control,
      .verdict = run.device_result != nullptr ? run.device_result : &control->verdict,
      .before = words_of(run),
      .states = words_of(run) + sizes.parts,
      .vectors = view.dense(16)};
  const std::int64_t scans = cuda::blocks_for(sizes.parts, kScanThreads);
  begin({.dtype = view.dtype,
         .absolute = params.absolute,
         .relative = params.relative,
         .exact_zero = params.exact_zero,
         .stored = params.relative != 0 ? reinterpret_cast<const double*>(packed.data()) : nullptr,
         .kept = nullptr,
         .control = control,
         .verdict = args.verdict,
         .states = args.states,
         .states_count = scans,
         .holding = nullptr},
        run.stream);
  cuda::launch(scan_kernel, {.blocks = scans, .threads = kScanThreads, .early = true}, run.stream,
               args);
  cuda::with_element(view.dtype, [&](auto element) {
    using Element = decltype(element);
    cuda::launch(unpack_kernel<Element>,
                 {.blocks = cuda::blocks_for(sizes.chunks, kUnpackWarps * kUnpackChunks<Element>),
                  .threads = kUnpackWarps * kWarp,
                  .shared_bytes = kUnpackSharedBytes<Element>,
                  .early = true},
                 run.stream, args);
  });
  if (run.device_result != nullptr || cuda::is_capturing(run.stream)) return;
  if (cuda::fetch(args.verdict, run.stream) != 0) {
    corrupt("a header or a payload contradicts itself; the bytes are damaged or of another tensor");
  }
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::bounded
