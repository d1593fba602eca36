#include "codec/exact/positive.h"

#include "base/element.h"
#include "base/fp_env.h"
#include "codec/exact/exact_common.h"
#include "codec/exact/mask.h"

namespace tuckfold::positive {
namespace {

Layout layout_of(const Stage&, DType, const Shape& shape) {
  const std::int64_t bytes = (shape.elems() + 7) / 8;
  return {.max_bytes = static_cast<std::size_t>(bytes), .dtype = DType::U8, .shape = {bytes}};
}

std::size_t pack_all(const Stage&, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  const PackJob job{&reader, out.data()};
  for_each_range(reader.elems(), run.threads,
                 [&](std::int64_t begin, std::int64_t end) { pack_bits(job, begin, end); });
  return out.size();
}

void unpack_all(const Stage&, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const auto one = [&] {
    const FpEnv env;
    return element_bits(out.dtype, 1.0);
  }();
  mask::unpack_pair({0, one}, packed, out, run.threads);
}

}  // namespace
}  // namespace tuckfold::positive

namespace tuckfold {

const Codec kPositive = {
    .info = {.name = "positive",
             .summary =
                 "one bit a value, whether it is above 0: what the backward of a ReLU needs"},
    .layout = positive::layout_of,
    .pack = positive::pack_all,
    .unpack = positive::unpack_all,
    .cuda = &positive::kCuda,
};

}  // namespace tuckfold
