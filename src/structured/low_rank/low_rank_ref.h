// second * first.
#pragma once

#include "structured/matrix_ref.h"

namespace tuckfold::structured {

inline MatrixRef low_rank_ref(const std::vector<double>& first, const std::vector<double>& second,
                              std::int64_t rank, std::int64_t in, std::int64_t out) {
  MatrixRef a(rank, in), b(out, rank);
  a.values = first;
  b.values = second;
  return b * a;
}

}  // namespace tuckfold::structured
