// Two block-diagonal matrices with a permutation after each: k blocks of i inputs give `mid` numbers
// each; number m of the k * mid goes to block m mod k as its number m / k; output s of block l is
// feature s * k + l.
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "structured/family.h"
#include "structured/tile/rows.h"

namespace tuckfold::structured {
namespace {

struct Sizes {
  std::int64_t k, in, out, i, o, mid;

  Sizes(std::int64_t blocks, std::int64_t all_in, std::int64_t all_out)
      : k(blocks),
        in(all_in),
        out(all_out),
        i(ceil_div(in, k)),
        o(ceil_div(out, k)),
        mid(std::min(i, o)) {}
  // Inputs of a block that there are, and outputs.
  std::int64_t inputs(std::int64_t block) const {
    return std::clamp<std::int64_t>(in - block * i, 0, i);
  }
  std::int64_t outputs(std::int64_t block) const { return (out - block + k - 1) / k; }
};

template <class T>
class MonarchKernel final : public Kernel<T> {
 public:
  explicit MonarchKernel(const Sizes& sizes) : s_(sizes) {}

  std::int64_t prepared_elems(bool) const override { return s_.k * s_.mid * s_.i; }
  void prepare(const Weights<T>& w, T* prepared) const override {
    for (std::int64_t b = 0; b < s_.k; ++b) {
      const std::int64_t at = b * s_.mid * s_.i;
      loops<T>().transpose(w.at[0] + at, s_.i, s_.mid, s_.i, prepared + at, s_.mid);
    }
  }
  std::int64_t forward_scratch(std::int64_t samples) const override {
    return samples * (s_.k * s_.mid + s_.o) + s_.o * s_.mid;
  }
  std::int64_t backward_scratch(std::int64_t samples) const override {
    return samples * (2 * s_.k * s_.mid + s_.mid);
  }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t samples,
               T* scratch) const override {
    const std::int64_t all = s_.k * s_.mid;
    T *h = scratch, *part = h + samples * all, *turned = part + samples * s_.o;
    first(w, x, h, samples);
    for (std::int64_t l = 0; l < s_.k; ++l) {
      const std::int64_t outs = s_.outputs(l);
      loops<T>().transpose(w.at[1] + l * s_.o * s_.mid, s_.mid, outs, s_.mid, turned, outs);
      multiply_rows<T>(samples, s_.mid, outs, {h + l, all, s_.k}, turned, outs, part, outs);
      for (std::int64_t b = 0; b < samples; ++b) {
        for (std::int64_t s = 0; s < outs; ++s) y[b * s_.out + s * s_.k + l] = part[b * outs + s];
      }
    }
  }

  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t samples, T* scratch) const override {
    const std::int64_t all = s_.k * s_.mid;
    T *h = scratch, *gh = h + samples * all, *part = gh + samples * all;
    first(w, x, h, samples);
    for (std::int64_t l = 0; l < s_.k; ++l) {
      const std::int64_t outs = s_.outputs(l), at = l * s_.o * s_.mid;
      const Features<T> g{gy + l, s_.out, s_.k};
      for (std::int64_t b = 0; b < samples; ++b) {
        for (std::int64_t r = 0; r < s_.mid; ++r) part[b * s_.mid + r] = h[b * all + r * s_.k + l];
      }
      add_outer<T>(samples, s_.mid, outs, g, part, s_.mid, gw.at[1] + at, s_.mid);
      multiply_rows<T>(samples, outs, s_.mid, g, w.at[1] + at, s_.mid, part, s_.mid);
      for (std::int64_t b = 0; b < samples; ++b) {
        for (std::int64_t r = 0; r < s_.mid; ++r) gh[b * all + r * s_.k + l] = part[b * s_.mid + r];
      }
    }
    for (std::int64_t b = 0; b < s_.k; ++b) {
      const std::int64_t ins = s_.inputs(b), at = b * s_.mid * s_.i;
      if (ins == 0) continue;
      const Features<T> g{gh + b * s_.mid, all};
      add_outer<T>(samples, ins, s_.mid, g, x + b * s_.i, s_.in, gw.at[0] + at, s_.i);
      if (gx != nullptr) {
        multiply_rows<T>(samples, s_.mid, ins, g, w.at[0] + at, s_.i, gx + b * s_.i, s_.in);
      }
    }
  }

 private:
  void first(const Weights<T>& w, const T* x, T* h, std::int64_t samples) const {
    for (std::int64_t b = 0; b < s_.k; ++b) {
      multiply_rows<T>(samples, s_.inputs(b), s_.mid, {x + b * s_.i, s_.in},
                       w.prepared + b * s_.mid * s_.i, s_.mid, h + b * s_.mid, s_.k * s_.mid);
    }
  }
  Sizes s_;
};

constexpr OptionInfo kOptions[] = {{.name = "blocks",
                                    .summary = "in each of the two matrices",
                                    .initial = 4,
                                    .least = 1,
                                    .most = 1 << 20}};

Declaration declare(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out) {
  if (values[0] > std::min(in, out)) {
    invalid("[structure] monarch: blocks must be 1..{} for {} to {} features, got {}",
            std::min(in, out), in, out, values[0]);
  }
  const Sizes s(values[0], in, out);
  Declaration d;
  d.weights = {{.name = "first",
                .shape = {s.k, s.mid, s.i},
                .deviation = 1 / std::sqrt(static_cast<double>(s.i))},
               {.name = "second",
                .shape = {s.k, s.o, s.mid},
                .deviation = 1 / std::sqrt(static_cast<double>(s.mid))}};
  d.flops_per_sample = 2.0 * static_cast<double>(s.k * s.mid) * static_cast<double>(s.i + s.o);
  d.plain = {
      {.kind = PlainStep::Kind::Move, .n = s.k * s.i},
      {.kind = PlainStep::Kind::Product, .n = s.mid, .k = s.i, .groups = s.k, .saves = s.k * s.i},
      {.kind = PlainStep::Kind::Move, .n = s.k * s.mid},
      {.kind = PlainStep::Kind::Product, .n = s.o, .k = s.mid, .groups = s.k, .saves = s.k * s.mid},
      {.kind = PlainStep::Kind::Move, .n = s.k * s.o}};
  d.f32 = std::make_unique<MonarchKernel<float>>(s);
  d.f64 = std::make_unique<MonarchKernel<double>>(s);
  return d;
}

}  // namespace

extern const Family kMonarch;
const Family kMonarch = {.name = "monarch",
                         .summary = "two block-diagonal matrices with permutations",
                         .options = kOptions,
                         .declare = declare};

}  // namespace tuckfold::structured
