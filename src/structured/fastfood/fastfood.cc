// W = S H G P H B: Hadamard transforms H between diagonals that are trained, and a fixed permutation
// P, (P x)[i] = x[permutation[i]]. n is the power of two that holds inputs and outputs.
#include <algorithm>
#include <cmath>

#include "structured/family.h"
#include "structured/tile/tile.h"

namespace tuckfold::structured {
namespace {

enum { kScale, kGaussian, kSigns, kPermutation };

template <class T>
class FastfoodKernel final : public Kernel<T> {
 public:
  FastfoodKernel(std::int64_t in, std::int64_t out, std::int64_t n, bool normalize)
      : in_(in), out_(out), n_(n), norm_(normalize ? T{1} / static_cast<T>(n) : T{1}) {}

  Order order() const override { return Order::Tile; }
  std::int64_t samples(bool) const override {
    std::int64_t lanes = 64;
    constexpr std::int64_t kMostBytes = 1 << 20;
    while (lanes > 16 && 4 * n_ * lanes * std::int64_t{sizeof(T)} > kMostBytes) lanes /= 2;
    return lanes;
  }
  // The outer diagonal with the factor of both transforms.
  std::int64_t prepared_elems(bool) const override { return n_; }
  void prepare(const Weights<T>& w, T* prepared) const override {
    for (std::int64_t i = 0; i < n_; ++i) prepared[i] = norm_ * w.at[kScale][i];
  }
  std::int64_t forward_scratch(std::int64_t lanes) const override { return 2 * n_ * lanes; }
  std::int64_t backward_scratch(std::int64_t lanes) const override { return 3 * n_ * lanes; }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t lanes,
               T* scratch) const override {
    T *a = scratch, *b = a + n_ * lanes;
    permuted(w, x, a, b, lanes);
    loops<T>().scale_rows(b, w.at[kGaussian], n_, lanes, b);
    loops<T>().hadamard(b, n_, lanes);
    loops<T>().scale_rows(b, w.prepared, out_, lanes, y);
  }

  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t lanes, T* scratch) const override {
    T *a = scratch, *p = a + n_ * lanes, *g = p + n_ * lanes;
    permuted(w, x, a, p, lanes);
    loops<T>().scale_rows(p, w.at[kGaussian], n_, lanes, a);
    loops<T>().hadamard(a, n_, lanes);
    // gy with the factor of the transforms; what is cut off has no gradient.
    for (std::int64_t i = 0; i < out_ * lanes; ++i) g[i] = norm_ * gy[i];
    std::fill(g + out_ * lanes, g + n_ * lanes, T{0});
    loops<T>().add_row_dots(g, a, out_, lanes, gw.at[kScale]);
    loops<T>().scale_rows(g, w.at[kScale], n_, lanes, g);
    loops<T>().hadamard(g, n_, lanes);
    loops<T>().add_row_dots(g, p, n_, lanes, gw.at[kGaussian]);
    loops<T>().scale_rows(g, w.at[kGaussian], n_, lanes, g);
    for (std::int64_t i = 0; i < n_; ++i) {
      std::copy_n(g + i * lanes, lanes, a + w.permutation[i] * lanes);
    }
    loops<T>().hadamard(a, n_, lanes);
    loops<T>().add_row_dots(a, x, in_, lanes, gw.at[kSigns]);
    if (gx != nullptr) loops<T>().scale_rows(a, w.at[kSigns], in_, lanes, gx);
  }

 private:
  // b = P H B x, by way of a.
  void permuted(const Weights<T>& w, const T* x, T* a, T* b, std::int64_t lanes) const {
    loops<T>().scale_rows(x, w.at[kSigns], in_, lanes, a);
    std::fill(a + in_ * lanes, a + n_ * lanes, T{0});
    loops<T>().hadamard(a, n_, lanes);
    for (std::int64_t i = 0; i < n_; ++i) {
      std::copy_n(a + w.permutation[i] * lanes, lanes, b + i * lanes);
    }
  }
  std::int64_t in_, out_, n_;
  T norm_;
};

constexpr OptionInfo kOptions[] = {
    {.name = "normalize",
     .summary = "divide by n, so that the transforms keep lengths; false as first published",
     .initial = 1,
     .words = kFalseTrue}};

Declaration declare(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out) {
  const std::int64_t n = power_of_two(std::max(in, out));
  Declaration d;
  d.weights = {{.name = "scale", .shape = {n}, .deviation = 1},
               {.name = "gaussian", .shape = {n}, .deviation = 1},
               {.name = "signs", .shape = {n}, .deviation = 1},
               {.name = "permutation", .shape = {n}, .trained = false}};
  const auto size = static_cast<double>(n);
  d.flops_per_sample = 2 * size * std::log2(size) + 3 * size;
  std::int64_t levels = 0;
  while ((std::int64_t{1} << levels) < n) ++levels;
  d.plain = {{.kind = PlainStep::Kind::Map, .n = n, .times = 3, .saves = n},  // diagonals
             {.kind = PlainStep::Kind::Move, .n = n},                         // the permutation
             {.kind = PlainStep::Kind::Map, .n = ceil_div(n, 2), .times = 4 * levels},
             {.kind = PlainStep::Kind::Move, .n = n, .times = 2 * levels}};
  d.f32 = std::make_unique<FastfoodKernel<float>>(in, out, n, values[0] != 0);
  d.f64 = std::make_unique<FastfoodKernel<double>>(in, out, n, values[0] != 0);
  return d;
}

}  // namespace

extern const Family kFastfood;
const Family kFastfood = {.name = "fastfood",
                          .summary = "diagonals between Hadamard transforms",
                          .options = kOptions,
                          .declare = declare};

}  // namespace tuckfold::structured
