// Any bytes unpack, or are refused as CorruptData; nothing beside the output is written.
#include <cstdlib>

#include "base/tensor_fixture.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tuckfold;
  Input input(data, size);
  const std::optional<CodecSpec> spec = input.spec();
  const DType dtype = input.dtype();
  const Shape shape = input.shape();
  const auto order = ref::kOrders[input.byte() % std::size(ref::kOrders)];
  const bool of_right_size = input.byte() % 8 != 7;
  if (!spec) return 0;
  const std::optional<Layout> fit = layout_or_nothing(*spec, dtype, shape);
  if (!fit) return 0;
  const std::vector<std::byte> packed = input.bytes(of_right_size ? fit->max_bytes : input.left());
  const ref::Tensor out(dtype, shape, order);
  try {
    unpack(*spec, packed, out.view(), {.threads = 1});
    if (fit->fixed && packed.size() != fit->max_bytes) std::abort();
  } catch (const Error& error) {
    if (error.code() == Errc::Unsupported) return 0;  // a library is not installed
    if (error.code() != Errc::CorruptData) std::abort();
    if (fit->fixed && packed.size() == fit->max_bytes) std::abort();
  }
  if (!out.gaps_untouched()) std::abort();
  return 0;
}
