// Any values pack to the bytes that layout announces, the same ones for any strides and
// on any number of threads, and unpack to the same values every time; of an exact codec to those
// that were packed.
#include <cstdlib>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/registry.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tuckfold;
  Input input(data, size);
  const std::optional<CodecSpec> spec = input.spec();
  const DType dtype = input.dtype();
  const Shape shape = input.shape();
  const auto order = ref::kOrders[input.byte() % std::size(ref::kOrders)];
  const std::uint64_t seed = input.byte();
  if (!spec) return 0;
  const std::optional<Layout> fit = layout_or_nothing(*spec, dtype, shape);
  if (!fit) return 0;
  const auto elems = static_cast<std::size_t>(shape.elems());
  if (fit->fixed && fit->max_bytes > elems * size_bytes(dtype)) std::abort();
  const auto values = values_for(*spec, dtype, shape, *fit, input);
  if (!values) return 0;
  const ConstTensorView in(values->data(), dtype, shape);
  const ref::Tensor strided(dtype, shape, order);
  unpack(CodecSpec::parse("raw"), *values, strided.view());

  const ref::Buffer once(fit->max_bytes), again(fit->max_bytes, 1);
  const std::optional<std::size_t> written =
      pack_or_nothing(*spec, in, once.span(), {.threads = 1, .seed = seed});
  if (!written) return 0;
  if (fit->fixed ? *written != fit->max_bytes : *written > fit->max_bytes) std::abort();
  const std::size_t twice = pack(*spec, strided.view(), again.span(), {.threads = 2, .seed = seed});
  const auto packed = once.span().first(*written);
  if (ref::first_difference(fit->dtype, packed, again.span().first(twice)) != "") std::abort();

  const ref::Tensor back(dtype, shape), back_strided(dtype, shape, order);
  unpack(*spec, packed, back.view(), {.threads = 1});
  unpack(*spec, packed, back_strided.view(), {.threads = 2});
  if (ref::first_difference(dtype, back.bytes(), back_strided.bytes()) != "") std::abort();
  const auto is_exact = [](const Stage& stage) { return row_of(stage).exact; };
  const auto stages = spec->stages();
  if (std::all_of(stages.begin(), stages.end(), is_exact) && back.bytes() != *values) std::abort();
  return 0;
}
