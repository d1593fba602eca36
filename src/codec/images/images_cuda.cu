// unpack_images on CUDA: a thread makes sixteen bytes of the output, of a row of one channel or,
// where channels are side by side, of all of them. It reads a pixel at a time, since windows begin
// anywhere; lanes read neighbours, so that memory is read in whole lines.
#include <algorithm>
#include <limits>

#include "base/cuda/divide.cuh"
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/images/images.h"
#include "codec/images/images_block.h"

namespace tuckfold::images {
namespace {

using cuda::Divider;

constexpr int kThreads = 256;

// f32 that stands for the u8 that it is rounded to.
struct Rounded {
  float value;
};

template <class T>
__device__ TUCKFOLD_INLINE float pixel_of(T value) {
  if constexpr (std::is_same_v<T, Rounded>) {
    return static_cast<float>(cuda::from_float<std::uint8_t>(value.value));
  } else if constexpr (std::is_same_v<T, std::uint16_t>) {
    return static_cast<float>(value);
  } else {
    return cuda::as_float(value);
  }
}

struct Args {
  const void* in;
  void* out;
  const Window* windows;
  const std::int32_t* places;
  const float *scale, *add;
  std::int64_t in_image, in_channel, in_row, in_col;      // steps, in elements
  std::int64_t out_image, out_channel, out_row, out_col;  // likewise
  std::uint32_t rows, cols;                               // of a sample
  std::uint32_t width;                                    // of the output
  std::uint32_t images;                                   // of the output
  std::uint32_t together;                                 // channels in a line: 1, or all
  std::uint32_t line;                                     // values of a line
  std::uint32_t vectors, height, planes;                  // of a line; lines; of an image
  Divider by_vectors, by_height, by_planes, by_together;
  std::uint32_t threads;
  std::int64_t first;   // sample of the launch
  bool aligned, dense;  // lines begin at multiples of 16 bytes; their values are side by side
};

template <class In, class Out>
__global__ void __launch_bounds__(kThreads) images_kernel(const __grid_constant__ Args a) {
  constexpr int kV = cuda::kVector<Out>;
  const std::uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const std::uint32_t lines = a.by_vectors.quotient(thread),
                      images_lines = a.by_height.quotient(lines);
  const std::uint32_t y = lines - images_lines * a.height;
  const std::uint32_t number = a.by_planes.quotient(images_lines);
  const std::uint32_t plane = images_lines - number * a.planes;
  const std::uint32_t begin = (thread - lines * a.vectors) * kV;
  const std::int64_t sample = a.first + number;
  const std::int64_t image = a.places == nullptr ? sample : __ldg(a.places + sample);
  if (image < 0 || image >= a.images) return;

  std::uint32_t top = 0, left = 0;
  bool mirrored = false;
  if (a.windows != nullptr) {
    const auto* window = reinterpret_cast<const std::int32_t*>(a.windows + sample);
    top = static_cast<std::uint32_t>(__ldg(window));
    left = static_cast<std::uint32_t>(__ldg(window + 1));
    mirrored = __ldg(window + 2) != 0;
  }
  // Numbers without sign: what is before the first row or column is past the last.
  const std::uint32_t row = top + y;
  const bool there = row < a.rows;
  const auto* from = static_cast<const In*>(a.in) + sample * a.in_image +
                     (there ? static_cast<std::int64_t>(row) * a.in_row : 0);
  std::uint32_t x = a.by_together.quotient(begin), c = begin - x * a.together;
  float values[kV];
#pragma unroll
  for (int i = 0; i < kV; ++i) {
    const std::uint32_t channel = plane + c;
    const std::uint32_t col = left + (mirrored ? a.width - 1 - x : x);
    float pixel = 0.0f;
    if (there && col < a.cols && x < a.width) {
      pixel = pixel_of(from[static_cast<std::int64_t>(col) * a.in_col +
                            static_cast<std::int64_t>(channel) * a.in_channel]);
    }
    values[i] = value_of(pixel, a.scale == nullptr ? 1.0f : __ldg(a.scale + channel),
                         a.add == nullptr ? 0.0f : __ldg(a.add + channel));
    if constexpr (sizeof(Out) == 4) values[i] = canonical(values[i]);
    if (++c == a.together) {
      c = 0;
      ++x;
    }
  }

  Out* to = static_cast<Out*>(a.out) + image * a.out_image +
            static_cast<std::int64_t>(plane) * a.out_channel +
            static_cast<std::int64_t>(y) * a.out_row;
  if (a.aligned && begin + kV <= a.line) {
    cuda::store_away(reinterpret_cast<uint4*>(to + begin), cuda::vector_of<Out>(values));
    return;
  }
  const std::int64_t step = a.dense ? 1 : a.out_col;
#pragma unroll
  for (int i = 0; i < kV; ++i) {
    const std::uint32_t at = begin + static_cast<std::uint32_t>(i);
    if (at < a.line) to[at * step] = cuda::from_float<Out>(values[i]);
  }
}

bool fits(std::int64_t number) { return number < (std::int64_t{1} << 31); }

template <class Out>
Args args_of(const ImageSides& sides, const ImagePass& pass, const ConstTensorView& samples,
             const TensorView& out) {
  const std::int64_t channels = sides.channels, height = out.shape[2], width = out.shape[3];
  constexpr std::int64_t kV = cuda::kVector<Out>;
  const bool together = channels > 1 && out.strides[1] == 1 && out.strides[3] == channels;
  const std::int64_t line = together ? width * channels : width;
  const std::int64_t vectors = cuda::blocks_for(line, kV), planes = together ? 1 : channels;
  if (!fits(sides.rows) || !fits(sides.cols) || !fits(out.shape[0]) || !fits(line) ||
      !fits(channels) || !fits(height) || !fits(planes * height) ||
      !fits(planes * height * vectors)) {
    cuda::raise(Errc::Unsupported, "unpack_images",
                "an image has 2^31 rows, columns or values; use the CPU");
  }
  const auto narrow = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  Args a{.in = samples.data,
         .out = out.data,
         .windows = pass.windows,
         .places = pass.places,
         .scale = pass.scale,
         .add = pass.add,
         .in_image = sides.channels * sides.rows * sides.cols,
         .in_channel = sides.planes ? sides.rows * sides.cols : 1,
         .in_row = sides.planes ? sides.cols : sides.cols * channels,
         .in_col = sides.planes ? 1 : channels,
         .out_image = out.strides[0],
         .out_channel = out.strides[1],
         .out_row = out.strides[2],
         .out_col = out.strides[3],
         .rows = narrow(sides.rows),
         .cols = narrow(sides.cols),
         .width = narrow(width),
         .images = narrow(out.shape[0]),
         .together = narrow(together ? channels : 1),
         .line = narrow(line),
         .vectors = narrow(vectors),
         .height = narrow(height),
         .planes = narrow(planes)};
  a.by_vectors = Divider(a.vectors);
  a.by_height = Divider(a.height);
  a.by_planes = Divider(a.planes);
  a.by_together = Divider(a.together);
  a.dense = together || out.strides[3] == 1;
  const auto even = [&](std::int64_t axis, std::int64_t length) {
    return length == 1 || out.strides[static_cast<std::size_t>(axis)] % kV == 0;
  };
  a.aligned = a.dense && reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 &&
              even(0, out.shape[0]) && even(2, height) && (together || even(1, channels));
  return a;
}

template <class In, class Out>
void launch_all(Args a, std::int64_t samples, void* stream) {
  const std::int64_t each = std::int64_t{a.vectors} * a.height * a.planes;
  const std::int64_t most =
      std::max<std::int64_t>(1, std::numeric_limits<std::int32_t>::max() / each);
  for (; a.first < samples; a.first += most) {
    const std::int64_t threads = each * std::min(most, samples - a.first);
    a.threads = static_cast<std::uint32_t>(threads);
    cuda::launch(images_kernel<In, Out>,
                 {.blocks = cuda::blocks_for(threads, kThreads), .threads = kThreads}, stream, a);
  }
}

void make(const ConstTensorView& samples, bool rounds, const ImageSides& sides,
          const ImagePass& pass, const TensorView& out, void* stream) {
  const auto with = [&]<class In, class Out>(In, Out) {
    launch_all<In, Out>(args_of<Out>(sides, pass, samples, out), samples.shape[0], stream);
  };
  const auto to = [&](auto in) {
    switch (out.dtype) {
      case DType::F16: return with(in, F16{});
      case DType::BF16: return with(in, BF16{});
      default: return with(in, float{});
    }
  };
  if (rounds) return to(Rounded{});
  if (samples.dtype == DType::U16) return to(std::uint16_t{});
  cuda::with_element(samples.dtype, to);
}

}  // namespace

const CudaImages kCuda = {.make = make};

}  // namespace tuckfold::images
