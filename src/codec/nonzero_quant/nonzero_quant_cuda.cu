// nonzero_quant on CUDA: one kernel each way. Only the device knows how many bytes there are: pack
// and unpack synchronize to read one number, unless the caller gives a place for it
// (CudaOptions::device_result).
#include <bit>

#include "base/cuda/runtime.h"
#include "codec/nonzero_quant/nonzero_quant_pack_cuda.cuh"
#include "codec/nonzero_quant/nonzero_quant_unpack_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::nonzero_quant {
namespace {

Settings settings_of(const Params& p, const Sizes& sizes) {
  const auto group = static_cast<std::uint32_t>(p.group);
  const bool quick = std::has_single_bit(group) && group <= 8 * kWarp;
  return {.elems = sizes.elems,
          .tiles = sizes.tiles,
          .group = group,
          .group_shift = quick ? std::countr_zero(group) : -1,
          .bits = static_cast<unsigned>(p.bits),
          .mask_at = sizes.mask_at(),
          .front_bytes = sizes.front_bytes()};
}

// Calls body with a value of the tensor's type, and whether kernels may use vectors.
template <class Body>
void with_kernel(const View& view, Body&& body) {
  cuda::with_element(view.dtype, [&]<class T>(T element) {
    if constexpr (std::is_same_v<T, KeptOf<T>>) {
      if (view.dense(16)) return body(element, std::true_type{});
    }
    body(element, std::false_type{});
  });
}

Control* control_of(const CudaContext& run) {
  return reinterpret_cast<Control*>(run.workspace.data());
}

// Reads a number that the device has written at `from`; synchronizes.
std::uint64_t fetch(const std::uint64_t* from, cuda::Stream stream) {
  std::uint64_t value = 0;
  cuda::copy(&value, from, sizeof(value), stream);
  cuda::synchronize(stream);
  return value;
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const Params p = Params::of(stage);
  const View view = View::of(in);
  const Sizes sizes(view.elems);
  if (sizes.tiles == 0) {
    if (run.device_result != nullptr) {
      cuda::fill(run.device_result, 0, sizeof(*run.device_result), run.stream);
    }
    return 0;
  }
  Control* control = control_of(run);
  cuda::fill(control, 0, cuda_workspace_bytes(sizes), run.stream);
  PackArgs args{
      .in = view,
      .settings = settings_of(p, sizes),
      .seed = run.seed,
      .device_seed = run.device_seed,
      .out = out.data(),
      .tickets = &control->tickets,
      .states = reinterpret_cast<std::uint64_t*>(run.workspace.data() + kCudaControlBytes),
      .verdict = run.device_result != nullptr ? run.device_result : &control->verdict,
      .part_bytes = 0};
  with_kernel(view, [&]<class T, class Vectors>(T, Vectors) {
    const std::size_t bytes = WarpPart<KeptOf<T>>::bytes(p.group, p.stochastic ? 3 : 2);
    args.part_bytes = static_cast<std::uint32_t>(bytes);
    cuda::launch(
        p.stochastic ? pack_kernel<T, Vectors::value, true> : pack_kernel<T, Vectors::value, false>,
        {.blocks = cuda::blocks_for(sizes.tiles, kWarps),
         .threads = kThreads,
         .shared_bytes = kWarps * bytes},
        run.stream, args);
  });
  if (run.device_result != nullptr || cuda::is_capturing(run.stream)) return out.size();
  return fetch(args.verdict, run.stream);
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  const Params p = Params::of(stage);
  const View view = View::of(out);
  const Sizes sizes(view.elems);
  const auto corrupt = [](const char* what) {
    cuda::raise(Errc::CorruptData, "nonzero_quant", what);
  };
  if (packed.size() < sizes.front_bytes()) corrupt("there are fewer bytes than its mask takes");
  if (sizes.tiles == 0 && !packed.empty()) corrupt("an empty tensor has no bytes");
  std::uint64_t* verdict = run.device_result != nullptr ? run.device_result
                           : sizes.tiles == 0           ? nullptr
                                                        : &control_of(run)->verdict;
  if (verdict != nullptr) cuda::fill(verdict, 0, sizeof(*verdict), run.stream);
  if (sizes.tiles == 0) return;
  UnpackArgs args{.out = view,
                  .settings = settings_of(p, sizes),
                  .packed = packed.data(),
                  .packed_bytes = packed.size(),
                  .verdict = verdict,
                  .part_bytes = 0};
  with_kernel(view, [&]<class T, class Vectors>(T, Vectors) {
    const std::size_t bytes = WarpPart<KeptOf<T>>::bytes(p.group, 1);
    args.part_bytes = static_cast<std::uint32_t>(bytes);
    cuda::launch(unpack_kernel<T, Vectors::value>,
                 {.blocks = cuda::blocks_for(sizes.tiles, kWarps),
                  .threads = kThreads,
                  .shared_bytes = kWarps * bytes},
                 run.stream, args);
  });
  if (run.device_result != nullptr || cuda::is_capturing(run.stream)) return;
  if (fetch(verdict, run.stream) != 0) {
    corrupt("a tile contradicts its mask; the bytes are damaged or of another tensor");
  }
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::nonzero_quant
