// The families, in the order in which they are listed.
#include "structured/family.h"

namespace tuckfold::structured {

extern const Family kButterfly, kPixelfly, kMonarch, kBlockDiagonal, kLowRank, kCirculant,
    kFastfood, kDense;

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&kButterfly, &kPixelfly,  &kMonarch,  &kBlockDiagonal,
                                           &kLowRank,   &kCirculant, &kFastfood, &kDense};
  return kAll;
}

}  // namespace tuckfold::structured
