// Losses as operators of PyTorch:
//
//   losses, sums = torch.ops.tuckfold.cross_entropy_rows(logits, classes, -100)
//   torch.ops.tuckfold.cross_entropy_grad(logits, classes, -100, sums, scale)     # like the logits
//
// Autograd and fake kernels are in python/tuckfold/torch/.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <tuple>

#include "torch/boxed.h"
#include "torch/call.h"
#include "torch/place.h"
#include "tuckfold/c.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using namespace tuckfold::torch_ops;

constexpr const char* kWhat = "cross_entropy";

const std::int64_t* classes_of(const Place& place, const Tensor& logits, const Tensor& classes) {
  if (logits.dim() != 2) refuse(kWhat, "logits must have two axes, rows and classes");
  if (classes.scalar_type() != ScalarType::Long || classes.dim() != 1 || !classes.is_contiguous() ||
      classes.numel() != logits.size(0)) {
    refuse(kWhat, "there must be a class for each row, contiguous, of int64");
  }
  check_all_on(kWhat, place, std::span(&classes, 1));
  return static_cast<const std::int64_t*>(classes.const_data_ptr());
}

// The loss of each row, and what its gradient needs: rows x 2.
std::tuple<Tensor, Tensor> cross_entropy_rows(const Tensor& logits, const Tensor& classes,
                                              std::int64_t ignored) {
  const Place place(logits);
  const std::int64_t* of_rows = classes_of(place, logits, classes);
  const std::int64_t shape[] = {logits.size(0), 2};
  const Tensor losses = place.empty({shape, 1}, ScalarType::Float);
  const Tensor sums = place.empty(shape, ScalarType::Float);
  const tuckfold_tensor view =
      view_of(kWhat, place, logits, const_cast<void*>(logits.const_data_ptr()));
  const Run run = run_of(place);
  check(tuckfold_cross_entropy(
      &view, of_rows, ignored, static_cast<float*>(losses.mutable_data_ptr()),
      static_cast<tuckfold_row_sum*>(sums.mutable_data_ptr()), &run.options));
  return {losses, sums};
}

Tensor cross_entropy_grad(const Tensor& logits, const Tensor& classes, std::int64_t ignored,
                          const Tensor& sums, const Tensor& scale) {
  const Place place(logits);
  const std::int64_t* of_rows = classes_of(place, logits, classes);
  for (const Tensor* each : {&sums, &scale}) {
    if (each->scalar_type() != ScalarType::Float || !each->is_contiguous()) {
      refuse(kWhat, "sums and scale must be contiguous, of float32");
    }
    check_all_on(kWhat, place, std::span(each, 1));
  }
  if (sums.numel() != 2 * logits.size(0) || scale.numel() != 1) {
    refuse(kWhat, "there must be two sums for each row, and one scale");
  }
  const Tensor out = place.empty({logits.sizes().data(), 2}, logits.scalar_type());
  const tuckfold_tensor view =
      view_of(kWhat, place, logits, const_cast<void*>(logits.const_data_ptr()));
  const tuckfold_tensor to = view_of(kWhat, place, out, out.mutable_data_ptr());
  const Run run = run_of(place);
  check(tuckfold_cross_entropy_gradient(
      &view, of_rows, ignored, static_cast<const tuckfold_row_sum*>(sums.const_data_ptr()),
      static_cast<const float*>(scale.const_data_ptr()), &to, &run.options));
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(tuckfold, library) {
  library.def(
      "cross_entropy_rows(Tensor logits, Tensor classes, SymInt ignored) -> (Tensor, Tensor)");
  library.def(
      "cross_entropy_grad(Tensor logits, Tensor classes, SymInt ignored, Tensor sums, Tensor "
      "scale) "
      "-> Tensor");
}

#define TUCKFOLD_REGISTER(device)                                  \
  STABLE_TORCH_LIBRARY_IMPL(tuckfold, device, library) {           \
    library.impl("cross_entropy_rows", boxed<cross_entropy_rows>); \
    library.impl("cross_entropy_grad", boxed<cross_entropy_grad>); \
  }
TUCKFOLD_REGISTER(CPU)
TUCKFOLD_REGISTER(CUDA)
#undef TUCKFOLD_REGISTER
