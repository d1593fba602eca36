// Losses in C.
#include "base/parallel.h"
#include "capi/handles.h"
#include "codec/loss/cross_entropy.h"
#include "tuckfold/c.h"

using namespace tuckfold;
using namespace tuckfold::capi;

namespace {

constexpr const char* kWhat = "cross_entropy";

RunOptions run_options(const tuckfold_options& options) {
  return {.threads = options.threads, .cuda = {.stream = options.stream}};
}

}  // namespace

tuckfold_status tuckfold_cross_entropy(const tuckfold_tensor* logits, const int64_t* classes,
                                       int64_t ignored, float* losses, tuckfold_row_sum* sums,
                                       const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of(kWhat, options);
    const UseExecutor on({run.executor, run.executor_data});
    cross_entropy(ConstTensorView(view_of(kWhat, logits)), {classes, ignored}, losses,
                  reinterpret_cast<RowSum*>(sums), run_options(run));
  });
}

tuckfold_status tuckfold_cross_entropy_gradient(const tuckfold_tensor* logits,
                                                const int64_t* classes, int64_t ignored,
                                                const tuckfold_row_sum* sums, const float* scale,
                                                const tuckfold_tensor* out,
                                                const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of(kWhat, options);
    const UseExecutor on({run.executor, run.executor_data});
    cross_entropy_gradient(ConstTensorView(view_of(kWhat, logits)), {classes, ignored},
                           reinterpret_cast<const RowSum*>(sums), scale, view_of(kWhat, out),
                           run_options(run));
  });
}
