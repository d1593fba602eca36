// unpack_rows: checks, and the CPU, where normalize_rows reads what was unpacked.
#include "codec/then/unpack_rows.h"

#include <vector>

#include "base/fail.h"
#include "base/strided.h"
#include "codec/then/then.h"

namespace tuckfold {

void unpack_rows(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                 const RowNormalization& how, const RunOptions& options) {
  const std::int64_t elems = plan.shape().elems();
  std::vector<std::byte> unpacked(
      out.device == Device::Cuda ? 0 : static_cast<std::size_t>(elems) * size_bytes(plan.dtype()));
  TensorView x = out;  // as it would be unpacked
  x.dtype = plan.dtype();
  if (out.device != Device::Cuda) x.data = unpacked.data();
  check_rows(ConstTensorView{x}, out, how);
  if (out.device == Device::Cuda) {
    if (elems == 0) return;
    if (&then::kCudaUnpackRows != nullptr && then::is_block_quant(plan, packed, x) &&
        then::kCudaUnpackRows.unpack(plan.spec().stages()[0], packed, plan.dtype(), out, how,
                                     options.cuda.stream)) {
      return;
    }
    fail(Errc::Unsupported,
         "[unpack_rows] on a CUDA device is for block_quant of 2, 4 and 8 bits and rows of a "
         "multiple of 8 values; unpack them, and use normalize_rows");
  }
  plan.unpack(packed, x, options);
  normalize_rows(ConstTensorView{x}, out, how, options);
}

}  // namespace tuckfold
