// Images as operators of PyTorch: from packed samples, and from the samples of a file, which are read,
// moved and unpacked by one call. A batch of small images takes a fifth of a millisecond, and threads
// that call several operators pass Python's lock to and fro.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "torch/boxed.h"
#include "torch/call.h"
#include "torch/place.h"
#include "torch/plan.h"
#include "tuckfold/c.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using namespace tuckfold::torch_ops;

// How images are made, of samples at any place.
struct Pass {
  const Tensor& scale;
  const Tensor& add;
  bool channels_last;
  const Tensor& out;

  std::int64_t channels() const { return out.dim() == 4 ? out.size(1) : 0; }
  void check_on(const char* what, const Place& place) const {
    for (const Tensor* factors : {&scale, &add}) {
      check_all_on(what, place, {factors, 1});
      check_numbers(what, "scale and add", {factors, 1}, channels());
    }
  }
  void make(const char* what, const Place& place, const Plan& plan, const void* packed,
            std::size_t bytes, const void* windows, const void* places) const {
    const tuckfold_tensor view = view_of(what, place, out, out.mutable_data_ptr());
    const Run run = run_of(place, tuckfold_unpack_images_bytes(plan.get(), place.device()), 0);
    const tuckfold_image_options how{.struct_bytes = sizeof how,
                                     .channels_last = channels_last ? 1 : 0,
                                     .channels = static_cast<std::size_t>(channels()),
                                     .scale = static_cast<const float*>(scale.const_data_ptr()),
                                     .add = static_cast<const float*>(add.const_data_ptr())};
    check(tuckfold_unpack_images(
        plan.get(), packed, bytes, static_cast<const tuckfold_window*>(windows),
        static_cast<const std::int32_t*>(places), &how, &view, &run.options));
  }
};

// Fills images of `out` from packed samples: windows of them, scaled, in one pass over the pixels.
// windows has top, left and mirrored for each sample, places the image that each becomes; either may
// be empty.
void unpack_images(const Tensor& packed, std::string_view spec, const Axes& shape, ScalarType dtype,
                   const Tensor& windows, const Tensor& places, const Tensor& scale,
                   const Tensor& add, bool channels_last, const Tensor& out) {
  constexpr const char* kWhat = "unpack_images";
  check_bytes(packed);
  const Plan plan(spec, dtype_of(kWhat, dtype), shape.all());
  const Place place(out);
  check_places(kWhat, place, packed, out);
  const std::int64_t samples = shape.rank > 0 ? shape.lengths[0] : 0;
  const auto numbers = [&](const Tensor& some, std::int64_t each) -> const void* {
    check_all_on(kWhat, place, {&some, 1});
    if (some.numel() == 0) return nullptr;
    if (some.scalar_type() != ScalarType::Int || !some.is_contiguous() ||
        some.numel() != each * samples) {
      refuse(kWhat, "windows and places must be contiguous, of int32, three and one a sample");
    }
    return some.const_data_ptr();
  };
  const void* where[2] = {numbers(windows, 3), numbers(places, 1)};
  const Pass pass{scale, add, channels_last, out};
  pass.check_on(kWhat, place);
  pass.make(kWhat, place, plan, packed.const_data_ptr(), static_cast<std::size_t>(packed.numel()),
            where[0], where[1]);
}

// ---- samples of a file --------------------------------------------------------------------------

// Samples of an array: Python has the reader and the numbers, and holds both during a call.
struct Samples {
  const tuckfold_reader* reader;
  std::size_t array;
  const std::int64_t* numbers;
  std::size_t count;

  Samples(std::int64_t reader_at, std::int64_t number, std::int64_t numbers_at, std::int64_t many)
      : reader(reinterpret_cast<const tuckfold_reader*>(reader_at)),
        array(static_cast<std::size_t>(number)),
        numbers(reinterpret_cast<const std::int64_t*>(numbers_at)),
        count(static_cast<std::size_t>(many)) {}
};

// A tensor of the host, from which copies to the place run on while the host goes on.
Tensor host_empty(const Place& place, torch::headeronly::IntHeaderOnlyArrayRef shape,
                  ScalarType dtype) {
  const torch::stable::Device host(torch::headeronly::DeviceType::CPU);
  return torch::stable::empty(shape, dtype, std::nullopt, host, place.cuda());
}
Tensor host_bytes(const Place& place, std::size_t bytes) {
  const std::int64_t size[] = {static_cast<std::int64_t>(bytes)};
  return host_empty(place, size, ScalarType::Byte);
}

// Packed samples with windows and places of images before them.
class Staged {
 public:
  Staged(const Place& place, const Samples& samples, std::size_t room, std::int32_t threads)
      : count_(samples.count), parts_(4), memory_(host_bytes(place, head() + room)) {
    std::size_t found = 0, needed = 0;
    for (;;) {
      check(tuckfold_reader_gather_packed(samples.reader, samples.array, samples.numbers, count_,
                                          at(head()), room, places(), parts_.data(), parts_.size(),
                                          &found, &needed, threads));
      if (found <= parts_.size() && needed <= room) break;
      room = std::max(room, needed);
      parts_.resize(std::max(parts_.size(), found));
      memory_ = host_bytes(place, head() + room);
    }
    parts_.resize(found);
    bytes_ = head() + needed;
  }

  // In the order of the parts.
  void put_windows(const tuckfold_window* windows) {
    auto* to = reinterpret_cast<tuckfold_window*>(at(0));
    if (parts_.size() == 1) {
      std::memcpy(to, windows, count_ * sizeof *to);
      return;
    }
    for (std::size_t i = 0; i < count_; ++i) to[i] = windows[places()[i]];
  }

  Tensor moved(const Place& place) {
    if (!place.cuda()) return memory_;
    Tensor there = place.bytes(bytes_);
    torch::stable::copy_(
        there, torch::stable::narrow(memory_, 0, 0, static_cast<std::int64_t>(bytes_)), true);
    return there;
  }

  const std::vector<tuckfold_packed_part>& parts() const { return parts_; }
  std::size_t head() const { return (count_ * (sizeof(tuckfold_window) + 4) + 255) / 256 * 256; }
  std::size_t places_at() const { return count_ * sizeof(tuckfold_window); }

 private:
  char* at(std::size_t offset) { return static_cast<char*>(memory_.mutable_data_ptr()) + offset; }
  std::int32_t* places() { return reinterpret_cast<std::int32_t*>(at(places_at())); }

  std::size_t count_, bytes_ = 0;
  std::vector<tuckfold_packed_part> parts_;
  Tensor memory_;
};

// Fills `out` with images of an array whose samples are packed alone, of `shape` and `dtype`. room:
// bytes that they take, at a guess; windows: where these are, or 0.
void read_images(std::int64_t reader, std::int64_t array, std::int64_t numbers, std::int64_t count,
                 const Axes& shape, ScalarType dtype, std::int64_t room, std::int64_t windows,
                 const Tensor& scale, const Tensor& add, bool channels_last, std::int64_t threads,
                 const Tensor& out) {
  constexpr const char* kWhat = "read_images";
  const Place place(out);
  const Pass pass{scale, add, channels_last, out};
  pass.check_on(kWhat, place);
  Staged staged(place, {reader, array, numbers, count}, static_cast<std::size_t>(room),
                static_cast<std::int32_t>(threads));
  if (windows != 0) staged.put_windows(reinterpret_cast<const tuckfold_window*>(windows));
  const Tensor moved = staged.moved(place);
  const auto* at = static_cast<const char*>(moved.const_data_ptr());
  std::vector<std::int64_t> all{0};
  all.insert(all.end(), shape.all().begin(), shape.all().end());
  std::size_t first = 0;
  for (const tuckfold_packed_part& part : staged.parts()) {
    all[0] = part.samples;
    const Plan plan(part.codec, dtype_of(kWhat, dtype), all);
    pass.make(kWhat, place, plan, at + staged.head() + part.offset, part.bytes,
              windows == 0 ? nullptr : at + first * sizeof(tuckfold_window),
              staged.parts().size() == 1 ? nullptr : at + staged.places_at() + 4 * first);
    first += static_cast<std::size_t>(part.samples);
  }
}

// Fills `out` with samples of an array, which the CPU unpacks.
void read_values(std::int64_t reader, std::int64_t array, std::int64_t numbers, std::int64_t count,
                 std::int64_t threads, const Tensor& out) {
  constexpr const char* kWhat = "read_values";
  const Place place(out);
  const Samples samples(reader, array, numbers, count);
  const Tensor memory =
      place.cuda() ? host_empty(place, out.sizes(), out.scalar_type()) : Tensor(out);
  tuckfold_tensor view = view_of(kWhat, place, memory, memory.mutable_data_ptr());
  view.device = TUCKFOLD_CPU;
  check(tuckfold_reader_gather(samples.reader, samples.array, samples.numbers, samples.count, &view,
                               static_cast<std::int32_t>(threads)));
  if (!place.cuda()) return;
  Tensor to = out;
  torch::stable::copy_(to, memory, true);
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(tuckfold, library) {
  library.def(
      "unpack_images(Tensor packed, str spec, SymInt[] shape, ScalarType dtype, Tensor windows, "
      "Tensor places, Tensor scale, Tensor add, bool channels_last, Tensor(a!) out) -> ()");
  // For this package alone: integers are addresses.
  library.def(
      "_read_images(int reader, int array, int numbers, int count, SymInt[] shape, ScalarType "
      "dtype, int room, int windows, Tensor scale, Tensor add, bool channels_last, int threads, "
      "Tensor(a!) out) -> ()");
  library.def(
      "_read_values(int reader, int array, int numbers, int count, int threads, Tensor(a!) out) -> "
      "()");
}

#define TUCKFOLD_REGISTER(device)                        \
  STABLE_TORCH_LIBRARY_IMPL(tuckfold, device, library) { \
    library.impl("unpack_images", boxed<unpack_images>); \
    library.impl("_read_images", boxed<read_images>);    \
    library.impl("_read_values", boxed<read_values>);    \
  }
TUCKFOLD_REGISTER(CPU)
TUCKFOLD_REGISTER(CUDA)
#undef TUCKFOLD_REGISTER
