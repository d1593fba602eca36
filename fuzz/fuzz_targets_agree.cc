// Every SIMD target packs and unpacks to the same bytes, also what no pack wrote.
#include <cstdlib>

#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tuckfold;
  static const std::vector<std::string> kTargets = cpu_targets();
  Input input(data, size);
  const std::optional<CodecSpec> spec = input.spec();
  const DType dtype = input.dtype();
  const Shape shape = input.shape();
  if (!spec) return 0;
  const std::optional<Layout> fit = layout_or_nothing(*spec, dtype, shape);
  if (!fit) return 0;
  const auto values = values_for(*spec, dtype, shape, *fit, input);
  if (!values) return 0;
  const std::vector<std::byte> any = input.bytes(fit->max_bytes);
  std::vector<std::byte> packed, unpacked, made_of_any;
  for (const std::string& target : kTargets) {
    use_cpu_target(target);
    std::vector<std::byte> bytes(fit->max_bytes);
    const std::optional<std::size_t> written = pack_or_nothing(
        *spec, ConstTensorView(values->data(), dtype, shape), bytes, {.threads = 1});
    if (!written) return 0;
    bytes.resize(*written);
    if (target == kTargets[0]) packed = bytes;
    if (ref::first_difference(fit->dtype, bytes, packed) != "") std::abort();
    const ref::Tensor out(dtype, shape);
    unpack(*spec, packed, out.view(), {.threads = 1});
    if (target == kTargets[0]) unpacked = out.bytes();
    if (ref::first_difference(dtype, out.bytes(), unpacked) != "") std::abort();
    try {
      unpack(*spec, any, out.view(), {.threads = 1});
    } catch (const Error& error) {
      if (error.code() != Errc::CorruptData) std::abort();
      continue;
    }
    if (target == kTargets[0]) made_of_any = out.bytes();
    if (ref::first_difference(dtype, out.bytes(), made_of_any) != "") std::abort();
  }
  return 0;
}
