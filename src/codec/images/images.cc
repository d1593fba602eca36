// unpack_images: checks, where samples are unpacked to, and the CPU. Samples that are stored as they
// are need not be unpacked: their pixels are read where they lie.
#include "codec/images/images.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/overlap.h"
#include "base/parallel.h"
#include "codec/plan.h"

namespace tuckfold {
namespace {

bool is_alone(const CodecSpec& spec, std::string_view name) {
  return spec.stages().size() == 1 && spec.stages().front().codec->name == name;
}

// Where samples are unpacked to before their pixels are taken.
struct Way {
  bool direct = false;  // nowhere
  bool rounds =
      false;  // to f32 in place of u8: such kernels of dct_quant are far faster, and values
              // are rounded to what they would be
  DType dtype = DType::F32;
  std::size_t samples_bytes = 0, plan_bytes = 0;  // of the workspace

  std::size_t bytes() const { return direct ? 0 : samples_bytes + plan_bytes + Workspace::kAlign; }
};

Way way_of(const Plan& plan, Device device) {
  Way way{.dtype = plan.dtype()};
  way.direct = is_alone(plan.spec(), "raw");
  if (way.direct) return way;
  way.rounds =
      device == Device::Cuda && plan.dtype() == DType::U8 && is_alone(plan.spec(), "dct_quant");
  if (way.rounds) way.dtype = DType::F32;
  const auto elems = static_cast<std::size_t>(plan.shape().elems());
  constexpr std::size_t kAlign = Workspace::kAlign;
  way.samples_bytes = (elems * size_bytes(way.dtype) + kAlign - 1) / kAlign * kAlign;
  way.plan_bytes = plan.layout().workspace_bytes;
  return way;
}

Shape sample_of(const Plan& plan) {
  return Shape(std::span(plan.shape().begin(), plan.shape().end()).subspan(1));
}

ImageSides check(const Plan& plan, const ImagePass& pass, const TensorView& out) {
  const Shape& shape = plan.shape();
  if (shape.rank() != 3 && shape.rank() != 4) {
    invalid("[unpack_images] samples have two or three axes, the tensor is {}; use unpack",
            to_string(shape));
  }
  if (must_be_exact(plan.dtype())) {
    invalid("[unpack_images] samples are u8, u16 or floats, got {}", to_string(plan.dtype()));
  }
  if (out.dtype != DType::F32 && out.dtype != DType::F16 && out.dtype != DType::BF16) {
    invalid("[unpack_images] images become f32, f16 or bf16, got {}", to_string(out.dtype));
  }
  const ImageSides sides = ImageSides::of(sample_of(plan), pass.channels_last);
  if (out.shape.rank() != 4 || out.strides.rank() != 4 || out.shape[1] != sides.channels) {
    invalid("[unpack_images] images are N x {} x H x W, the output is {}", sides.channels,
            to_string(out.shape));
  }
  if (pass.places == nullptr && out.shape[0] != shape[0]) {
    invalid("[unpack_images] {} samples need as many images, the output has {}", shape[0],
            out.shape[0]);
  }
  if (out.data == nullptr && out.shape.elems() > 0) {
    invalid("[unpack_images] the output has no data");
  }
  if (reinterpret_cast<std::uintptr_t>(out.data) % size_bytes(out.dtype) != 0) {
    invalid("[unpack_images] {} data must be aligned to {} bytes; copy it to an aligned buffer",
            to_string(out.dtype), size_bytes(out.dtype));
  }
  check_apart("unpack_images", out);
  if (out.device == Device::Cuda && !cuda::built()) {
    fail(Errc::Unsupported,
         "[unpack_images] this build has no CUDA codecs; install tuckfold where nvcc is, or use a "
         "tensor on the CPU");
  }
  return sides;
}

// What Steps::check_unpack would say of packed bytes that are not unpacked.
void check_direct(const Plan& plan, std::span<const std::byte> packed, const TensorView& out) {
  if (packed.size() != plan.layout().max_bytes) {
    fail(Errc::CorruptData, "[unpack_images] raw of {} {} packs to {} bytes, got {}",
         to_string(plan.dtype()), to_string(plan.shape()), plan.layout().max_bytes, packed.size());
  }
  if (overlaps(packed, out)) {
    invalid("[unpack_images] the output shares memory with the packed bytes; use another place");
  }
  const std::size_t align = out.device == Device::Cuda ? 16 : size_bytes(plan.dtype());
  if (reinterpret_cast<std::uintptr_t>(packed.data()) % align != 0) {
    invalid("[unpack_images] packed bytes must start at a multiple of {} bytes; copy them", align);
  }
}

// Threads write images at the same time.
void check_places(const std::int32_t* places, std::int64_t count, std::int64_t images) {
  std::vector<bool> taken(static_cast<std::size_t>(images));
  for (std::int64_t i = 0; i < count; ++i) {
    if (places[i] < 0 || places[i] >= images) {
      invalid("[unpack_images] places must be 0..{}, got {}", images - 1, places[i]);
    }
    if (taken[static_cast<std::size_t>(places[i])]) {
      invalid("[unpack_images] every sample needs a place of its own, got {} twice", places[i]);
    }
    taken[static_cast<std::size_t>(places[i])] = true;
  }
}

void make_on_cpu(const ConstTensorView& samples, const ImageSides& sides, const ImagePass& pass,
                 const TensorView& out, int threads) {
  const std::int64_t count = samples.shape[0];
  if (pass.places != nullptr) check_places(pass.places, count, out.shape[0]);
  const auto factors = [&](const float* from) -> std::span<const float> {
    if (from == nullptr) return {};
    return {from, static_cast<std::size_t>(sides.channels)};
  };
  const ImageWriter writer(sides, factors(pass.scale), factors(pass.add), out);
  const FlatReader in(samples);
  parallel_for(count, threads, [&](std::int64_t begin, std::int64_t end) {
    ImageWriter::Room room;
    for (std::int64_t i = begin; i < end; ++i) {
      writer.write(in, i, pass.places == nullptr ? i : pass.places[i],
                   pass.windows == nullptr ? Window{} : pass.windows[i], room);
    }
  });
}

}  // namespace

std::size_t unpack_images_workspace(const Plan& plan, Device device) {
  return way_of(plan, device).bytes();
}

void unpack_images(const Plan& plan, std::span<const std::byte> packed, const ImagePass& pass,
                   const TensorView& out, const RunOptions& options) {
  const ImageSides sides = check(plan, pass, out);
  if (options.threads < 0) {
    invalid("[unpack_images] threads must be 0 or more, got {}", options.threads);
  }
  const Way way = way_of(plan, out.device);
  const Workspace workspace("unpack_images", options, way.bytes(), out.device);
  const void* samples = packed.data();
  if (way.direct) {
    check_direct(plan, packed, out);
  } else {
    RunOptions unpacking = options;
    unpacking.workspace = {};
    if (way.plan_bytes > 0) {
      unpacking.workspace = {workspace.at(way.samples_bytes), way.plan_bytes};
    }
    const TensorView unpacked(workspace.at(0), way.dtype, plan.shape(), out.device);
    if (way.rounds) {
      Plan(plan.spec(), DType::F32, plan.shape()).unpack(packed, unpacked, unpacking);
    } else {
      plan.unpack(packed, unpacked, unpacking);
    }
    samples = unpacked.data;
  }
  if (out.shape.elems() == 0 || plan.shape()[0] == 0) return;
  const ConstTensorView view(samples, way.dtype, plan.shape(), out.device);
  if (out.device == Device::Cuda) {
    images::kCuda.make(view, way.rounds, sides, pass, out, options.cuda.stream);
  } else {
    make_on_cpu(view, sides, pass, out, thread_count(options.threads));
  }
}

}  // namespace tuckfold
