// A matrix without structure, to compare with and to keep where nothing else will do.
#include <cmath>

#include "structured/family.h"
#include "structured/tile/rows.h"

namespace tuckfold::structured {
namespace {

template <class T>
class DenseKernel final : public Kernel<T> {
 public:
  DenseKernel(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}

  std::int64_t prepared_elems(bool backward) const override { return backward ? 0 : in_ * out_; }
  void prepare(const Weights<T>& w, T* prepared) const override {
    loops<T>().transpose(w.at[0], in_, out_, in_, prepared, out_);
  }
  std::int64_t forward_scratch(std::int64_t) const override { return 0; }
  std::int64_t backward_scratch(std::int64_t) const override { return 0; }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t samples, T*) const override {
    multiply_rows<T>(samples, in_, out_, {x, in_}, w.prepared, out_, y, out_);
  }
  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t samples, T*) const override {
    if (gx != nullptr) multiply_rows<T>(samples, out_, in_, {gy, out_}, w.at[0], in_, gx, in_);
    add_outer<T>(samples, in_, out_, {gy, out_}, x, in_, gw.at[0], in_);
  }

 private:
  std::int64_t in_, out_;
};

Declaration declare(std::span<const std::int64_t>, std::int64_t in, std::int64_t out) {
  Declaration d;
  d.weights = {
      {.name = "weight", .shape = {out, in}, .deviation = 1 / std::sqrt(static_cast<double>(in))}};
  d.flops_per_sample = 2.0 * static_cast<double>(in) * static_cast<double>(out);
  d.plain = {{.kind = PlainStep::Kind::Product, .n = out, .k = in, .saves = in}};
  d.f32 = std::make_unique<DenseKernel<float>>(in, out);
  d.f64 = std::make_unique<DenseKernel<double>>(in, out);
  return d;
}

}  // namespace

extern const Family kDense;
const Family kDense = {
    .name = "dense", .summary = "every entry a weight, as in torch.nn.Linear", .declare = declare};

}  // namespace tuckfold::structured
