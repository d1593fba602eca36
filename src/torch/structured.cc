// Structured layers as operators of PyTorch:
//
//   torch.ops.tuckfold.structured(x, "butterfly(tied=true)", out, weights, bias)     # like a Linear
//   torch.ops.tuckfold.structured_backward(grad_y, x, text, weights, needs_x)        # [x, weights…, bias]
//
// Any leading axes and strides. Autograd, fake kernels and what runs on a GPU are in
// python/tuckfold/torch/nn/.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torch/boxed.h"
#include "torch/call.h"
#include "torch/place.h"
#include "tuckfold/c.h"

namespace {

using namespace tuckfold::torch_ops;
using torch::stable::detail::from;
using torch::stable::detail::to;

struct FreeLayer {
  void operator()(tuckfold_structured* layer) const { tuckfold_structured_free(layer); }
};
using LayerHandle = std::unique_ptr<tuckfold_structured, FreeLayer>;

// The layers that a thread used last; programs use a few, over and over.
const tuckfold_structured* layer_of(std::string_view text, std::int64_t in, std::int64_t out) {
  thread_local std::unordered_map<std::string, LayerHandle> t_layers;
  if (text.find('\0') != std::string_view::npos) {
    refuse("structure", "a text has no NUL characters");
  }
  std::string key = std::string(text) + '\0' + std::to_string(in) + ' ' + std::to_string(out);
  const auto found = t_layers.find(key);
  if (found != t_layers.end()) return found->second.get();
  tuckfold_structured* made = nullptr;
  check(tuckfold_structured_make(key.c_str(), in, out, &made));  // the text ends at its NUL
  constexpr std::size_t kMostLayers = 256;
  if (t_layers.size() >= kMostLayers) t_layers.clear();
  return t_layers.emplace(std::move(key), LayerHandle(made)).first->second.get();
}

// A tensor of any leading axes as samples x features.
struct Matrix {
  Tensor tensor;
  std::int64_t shape[2];

  Matrix(const char* what, const Tensor& given)
      : tensor(given.is_contiguous() ? given : torch::stable::contiguous(given)) {
    if (given.dim() < 1) refuse(what, "x must have at least one axis, of features");
    shape[1] = given.size(given.dim() - 1);
    shape[0] = 1;
    for (std::int64_t axis = 0; axis + 1 < given.dim(); ++axis) shape[0] *= given.size(axis);
  }
  tuckfold_tensor view(const char* what, const Place& place) {
    return {.data = tensor.mutable_data_ptr(),
            .dtype = dtype_of(what, tensor.scalar_type()),
            .rank = 2,
            .shape = shape,
            .strides = nullptr,
            .device = place.device()};
  }
};

class Weights {
 public:
  Weights(const char* what, const Place& place, const std::vector<Tensor>& given) {
    for (const Tensor& weight : given) {
      if (!place.holds(weight)) refuse(what, "weights must be on the device of x; move them");
      tensors_.push_back(weight.is_contiguous() ? weight : torch::stable::contiguous(weight));
    }
    for (const Tensor& weight : tensors_) {
      views_.push_back(view_of(what, place, weight, const_cast<void*>(weight.const_data_ptr())));
    }
  }
  const tuckfold_tensor* data() const { return views_.data(); }
  std::size_t size() const { return views_.size(); }

 private:
  std::vector<Tensor> tensors_;
  std::vector<tuckfold_tensor> views_;
};

Tensor structured(const Tensor& x, std::string_view text, std::int64_t out,
                  const std::vector<Tensor>& weights, const std::optional<Tensor>& bias) {
  constexpr const char* kWhat = "forward";
  const Place place(x);
  Matrix in(kWhat, x);
  const tuckfold_structured* layer = layer_of(text, in.shape[1], out);
  std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = out;
  Tensor y = place.empty(shape, x.scalar_type());
  Matrix to_y(kWhat, y);
  const Weights w(kWhat, place, weights);
  std::vector<Tensor> some_bias;
  if (bias.has_value()) some_bias.push_back(*bias);
  const Weights b(kWhat, place, some_bias);
  const tuckfold_tensor x_view = in.view(kWhat, place), y_view = to_y.view(kWhat, place);
  const Run run = run_of(
      place,
      place.cuda() ? tuckfold_structured_workspace_bytes(layer, x_view.dtype, in.shape[0], 0) : 0);
  check(tuckfold_structured_forward(layer, &x_view, w.data(), w.size(),
                                    bias.has_value() ? b.data() : nullptr, &y_view, &run.options));
  return y;
}

// The gradients of x (of no elements where it is not needed), of the weights (none for a permutation)
// and of a bias.
std::vector<Tensor> structured_backward(const Tensor& grad_y, const Tensor& x,
                                        std::string_view text, const std::vector<Tensor>& weights,
                                        bool needs_x) {
  constexpr const char* kWhat = "backward";
  constexpr std::int64_t kNone = 0;
  const Place place(x);
  if (!place.holds(grad_y)) refuse(kWhat, "the gradient must be on the device of x; move it");
  Matrix in(kWhat, x), from_y(kWhat, grad_y);
  const std::int64_t out = from_y.shape[1];
  const tuckfold_structured* layer = layer_of(text, in.shape[1], out);
  const Weights w(kWhat, place, weights);
  const Tensor none = place.empty({&kNone, 1}, x.scalar_type());
  std::vector<Tensor> grads = {needs_x ? place.empty(x.sizes(), x.scalar_type()) : none};
  std::vector<tuckfold_tensor> places;
  for (const Tensor& weight : weights) {
    const bool trained = weight.scalar_type() != ScalarType::Long;
    grads.push_back(trained ? place.empty(weight.sizes(), x.scalar_type())
                            : place.empty({&kNone, 1}, x.scalar_type()));
    places.push_back(
        view_of(kWhat, place, grads.back(), trained ? grads.back().mutable_data_ptr() : nullptr));
  }
  grads.push_back(place.empty({&out, 1}, x.scalar_type()));
  const tuckfold_tensor bias = view_of(kWhat, place, grads.back(), grads.back().mutable_data_ptr());
  Matrix to_x(kWhat, needs_x ? grads[0] : x);
  const tuckfold_tensor x_view = in.view(kWhat, place), y_view = from_y.view(kWhat, place);
  const tuckfold_tensor gx_view = to_x.view(kWhat, place);
  const Run run = run_of(
      place,
      place.cuda() ? tuckfold_structured_workspace_bytes(layer, x_view.dtype, in.shape[0], 1) : 0);
  check(tuckfold_structured_backward(layer, &x_view, &y_view, w.data(), w.size(),
                                     needs_x ? &gx_view : nullptr, places.data(), &bias,
                                     &run.options));
  return grads;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(tuckfold, library) {
  library.def(
      "structured(Tensor x, str text, SymInt out, Tensor[] weights, Tensor? bias) -> Tensor");
  library.def(
      "structured_backward(Tensor grad_y, Tensor x, str text, Tensor[] weights, bool needs_x) -> "
      "Tensor[]");
  // The same kernels by another name, which the package calls for tensors of a GPU that have one.
  library.def(
      "structured_kernel(Tensor x, str text, SymInt out, Tensor[] weights, Tensor? bias) -> "
      "Tensor");
  library.def(
      "structured_kernel_backward(Tensor grad_y, Tensor x, str text, Tensor[] weights, bool "
      "needs_x) "
      "-> Tensor[]");
}

STABLE_TORCH_LIBRARY_IMPL(tuckfold, CPU, library) {
  library.impl("structured", boxed<structured>);
  library.impl("structured_backward", boxed<structured_backward>);
}
STABLE_TORCH_LIBRARY_IMPL(tuckfold, CUDA, library) {
  library.impl("structured_kernel", boxed<structured>);
  library.impl("structured_kernel_backward", boxed<structured_backward>);
}
