// C[i][j] = kernel[(i - j) mod n] with n the larger of inputs and outputs: a product of Fourier
// transforms. Two samples share a transform, as real and imaginary part. Where n is no power of two
// the convolution is a longer one, wrapped round.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "structured/family.h"
#include "structured/tile/tile.h"

namespace tuckfold::structured {
namespace {

struct Sizes {
  std::int64_t in, out, n, length;  // length: of the transforms

  Sizes(std::int64_t all_in, std::int64_t all_out)
      : in(all_in), out(all_out), n(std::max(in, out)), length(power_of_two(n)) {
    if (length != n) length = power_of_two(2 * n - 1);
  }
  bool wraps() const { return length != n; }
};

template <class T>
std::vector<T> roots_of_one(std::int64_t length) {
  std::vector<T> roots(static_cast<std::size_t>(length));
  for (std::int64_t k = 0; k < length / 2; ++k) {
    const double angle =
        -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
    roots[static_cast<std::size_t>(2 * k)] = static_cast<T>(std::cos(angle));
    roots[static_cast<std::size_t>(2 * k + 1)] = static_cast<T>(std::sin(angle));
  }
  return roots;
}

constexpr std::int64_t kGranule = 2 * kLanes;  // a vector of each part

template <class T>
class CirculantKernel final : public Kernel<T> {
 public:
  explicit CirculantKernel(const Sizes& sizes)
      : s_(sizes),
        roots_(roots_of_one<T>(s_.length)),
        exact_roots_(roots_of_one<double>(s_.length)) {}

  Order order() const override { return Order::Tile; }
  std::int64_t granule() const override { return kGranule; }
  std::int64_t samples(bool) const override {
    constexpr std::int64_t kMostBytes = 1 << 20;
    const bool fits = 4 * s_.length * 64 * std::int64_t{sizeof(T)} <= kMostBytes;
    return fits ? 64 : kGranule;
  }

  // The kernel's transform over length, in bit-reversed order.
  std::int64_t prepared_elems(bool) const override { return 2 * s_.length; }
  std::int64_t prepared_gradient_elems() const override { return 2 * s_.length; }
  void prepare(const Weights<T>& w, T* prepared) const override {
    std::vector<double> tile(static_cast<std::size_t>(s_.length * kGranule));
    for (std::int64_t i = 0; i < s_.n; ++i) {
      tile[static_cast<std::size_t>(i * kGranule)] = static_cast<double>(w.at[0][i]);
    }
    loops<double>().fft(tile.data(), s_.length, kGranule, exact_roots_.data());
    for (std::int64_t i = 0; i < s_.length; ++i) {
      for (std::int64_t part = 0; part < 2; ++part) {
        prepared[2 * i + part] =
            static_cast<T>(tile[static_cast<std::size_t>(i * kGranule + part * kGranule / 2)] /
                           static_cast<double>(s_.length));
      }
    }
  }
  void finish(const Weights<T>&, const Gradients<T>& gw) const override {
    std::vector<double> tile(static_cast<std::size_t>(s_.length * kGranule));
    for (std::int64_t i = 0; i < s_.length; ++i) {
      for (std::int64_t part = 0; part < 2; ++part) {
        tile[static_cast<std::size_t>(i * kGranule + part * kGranule / 2)] =
            static_cast<double>(gw.prepared[2 * i + part]);
      }
    }
    loops<double>().inverse_fft(tile.data(), s_.length, kGranule, exact_roots_.data());
    for (std::int64_t i = 0; i < s_.n; ++i) {
      gw.at[0][i] = static_cast<T>(tile[static_cast<std::size_t>(i * kGranule)] /
                                   static_cast<double>(s_.length));
    }
  }
  std::int64_t forward_scratch(std::int64_t lanes) const override { return s_.length * lanes; }
  std::int64_t backward_scratch(std::int64_t lanes) const override { return 2 * s_.length * lanes; }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t lanes, T* a) const override {
    transform(x, s_.in, a, lanes);
    loops<T>().scale_complex(a, w.prepared, false, s_.length, lanes);
    loops<T>().inverse_fft(a, s_.length, lanes, roots_.data());
    std::copy_n(a, s_.out * lanes, y);
    if (!s_.wraps()) return;
    const T* rest = a + s_.n * lanes;
    for (std::int64_t i = 0; i < std::min(s_.out, s_.length - s_.n) * lanes; ++i) y[i] += rest[i];
  }

  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t lanes, T* scratch) const override {
    T *a = scratch, *g = a + s_.length * lanes;
    transform(x, s_.in, a, lanes);
    std::copy_n(gy, s_.out * lanes, g);
    std::fill(g + s_.out * lanes, g + s_.length * lanes, T{0});
    if (s_.wraps()) {
      std::copy_n(gy, std::min(s_.out, s_.length - s_.n) * lanes, g + s_.n * lanes);
    }
    loops<T>().fft(g, s_.length, lanes, roots_.data());
    loops<T>().add_complex_dots(a, g, s_.length, lanes, gw.prepared);
    if (gx == nullptr) return;
    loops<T>().scale_complex(g, w.prepared, true, s_.length, lanes);
    loops<T>().inverse_fft(g, s_.length, lanes, roots_.data());
    std::copy_n(g, s_.in * lanes, gx);
  }

 private:
  void transform(const T* x, std::int64_t rows, T* tile, std::int64_t lanes) const {
    std::copy_n(x, rows * lanes, tile);
    std::fill(tile + rows * lanes, tile + s_.length * lanes, T{0});
    loops<T>().fft(tile, s_.length, lanes, roots_.data());
  }
  Sizes s_;
  std::vector<T> roots_;
  std::vector<double> exact_roots_;
};

Declaration declare(std::span<const std::int64_t>, std::int64_t in, std::int64_t out) {
  const Sizes s(in, out);
  Declaration d;
  d.weights = {
      {.name = "kernel", .shape = {s.n}, .deviation = 1 / std::sqrt(static_cast<double>(in))}};
  const auto length = static_cast<double>(s.length);
  d.flops_per_sample = 10 * length * std::log2(std::max(length, 2.0)) / 2 + 3 * length;
  // Accelerators have no FFT that PyTorch reaches: the matrix, gathered.
  d.plain = {{.kind = PlainStep::Kind::Move, .n = in * out, .per_sample = false},
             {.kind = PlainStep::Kind::Product, .n = out, .k = in, .saves = in}};
  d.f32 = std::make_unique<CirculantKernel<float>>(s);
  d.f64 = std::make_unique<CirculantKernel<double>>(s);
  return d;
}

}  // namespace

extern const Family kCirculant;
const Family kCirculant = {
    .name = "circulant", .summary = "a convolution that wraps round", .declare = declare};

}  // namespace tuckfold::structured
