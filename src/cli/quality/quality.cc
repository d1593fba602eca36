#include "cli/quality/quality.h"

namespace tuckfold::cli {

Quality quality_of(const Sums& sums) {
  return {.psnr_db = sums.psnr_db(sums.range()),
          .max_error = sums.lost > 0 ? std::numeric_limits<double>::infinity() : sums.max_error,
          .range = sums.range(),
          .lost = sums.lost};
}

Quality compare(DType dtype, std::int64_t elems, const void* original, const void* result,
                const std::uint8_t* marks) {
  return quality_of(compare_values(dtype, original, dtype, result, elems, marks));
}

}  // namespace tuckfold::cli
