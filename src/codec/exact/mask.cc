#include "codec/exact/mask.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/element.h"
#include "base/fail.h"
#include "base/fp_env.h"
#include "base/stream.h"
#include "codec/exact/exact_common.h"

namespace tuckfold::mask {
namespace {

constexpr std::array<std::string_view, 2> kValues = {"bool", "sign"};

constexpr ParamInfo kParams[] = {
    {.name = "values",
     .summary = "which two values there are: 0 and scale, or -scale and scale",
     .default_value = 0,
     .words = kValues},
    {.name = "scale",
     .summary = "the larger value, rounded to the dtype",
     .default_value = 1,
     .min = 1e-30,
     .max = 1e30,
     .step = 0},
};

bool is_sign(const Stage& stage) { return stage["values"] == 1; }

// "mask holds 0 and 2"
std::string rule_of(const Stage& stage, DType dtype) {
  const Pair pair = pair_of(stage, dtype);
  return fmt::format("mask holds {} and {}", element_text(dtype, pair.clear),
                     element_text(dtype, pair.set));
}

Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  const double scale = stage["scale"];
  if (!holds(dtype, scale) || (is_sign(stage) && !holds(dtype, -scale))) {
    invalid("[layout] mask holds {} and {}, which {} does not; {}", is_sign(stage) ? -scale : 0.0,
            scale, to_string(dtype),
            holds(dtype, scale) ? "use values=bool" : "use a whole scale that fits");
  }
  const std::uint64_t set = pair_of(stage, dtype).set;
  if (const double value = element_value(dtype, set); value == 0 || std::isinf(value)) {
    invalid("[layout] scale={} of mask is {} in {}; use a dtype with more range", scale,
            element_text(dtype, set), to_string(dtype));
  }
  const std::int64_t bytes = (shape.elems() + 7) / 8;
  return {.max_bytes = static_cast<std::size_t>(bytes),
          .workspace_bytes = kNoteBytes,
          .dtype = DType::U8,
          .shape = {bytes}};
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  const Pair pair = pair_of(stage, in.dtype);
  const PackJob job{pair.clear, pair.set, &reader, out.data()};
  const std::int64_t refused = first_refused(
      reader.elems(), run.threads,
      [&](std::int64_t begin, std::int64_t end) { return pack_bits(job, begin, end); });
  if (refused < reader.elems()) {
    refuse(stage, in.dtype, refused_bits(reader, refused), refused);
  }
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  unpack_pair(pair_of(stage, out.dtype), packed, out, run.threads);
}

}  // namespace

Pair pair_of(const Stage& stage, DType dtype) {
  const FpEnv env;
  const double scale = stage["scale"];
  return {.clear = element_bits(dtype, is_sign(stage) ? -scale : 0.0),
          .set = element_bits(dtype, scale)};
}

void unpack_pair(const Pair& pair, std::span<const std::byte> packed, const TensorView& out,
                 int threads) {
  const FlatWriter writer(out);
  const std::size_t bytes = static_cast<std::size_t>(writer.elems()) * size_bytes(out.dtype);
  const UnpackJob job{pair.clear, pair.set, packed.data(), &writer, bytes > kStreamBytes};
  for_each_range(writer.elems(), threads,
                 [&](std::int64_t begin, std::int64_t end) { unpack_bits(job, begin, end); });
}

void refuse(const Stage& stage, DType dtype, std::uint64_t bits, std::int64_t index) {
  invalid("[pack] {}, got {}; give the scale of the values, or use another codec",
          rule_of(stage, dtype), refused_text(dtype, bits, index));
}

}  // namespace tuckfold::mask

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {{"mask(scale={high})"}, {"mask(values=sign, scale={high})"}};

}  // namespace

const Codec kMask = {
    .info = {.name = "mask",
             .summary = "one bit for each of two values, exactly",
             .params = mask::kParams},
    .exact = true,
    .layout = mask::layout_of,
    .pack = mask::pack_all,
    .unpack = mask::unpack_all,
    .cuda = &mask::kCuda,
    .reports = true,
    .ladders = kLadders,
};

}  // namespace tuckfold
