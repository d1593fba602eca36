// A product of log2(n) sparse factors, each of 2 x 2 matrices. n is the power of two that holds the
// inputs; what lacks is zero. More than n outputs come from several such products of the same input.
#include "structured/butterfly/butterfly.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/fail.h"
#include "structured/butterfly/butterfly_cuda.h"
#include "structured/family.h"
#include "structured/run.h"

namespace tuckfold::structured {
namespace {

enum Stride : std::int64_t { kIncreasing, kDecreasing };
enum Form : std::int64_t { kFree, kOrthogonal };

struct Sizes {
  std::int64_t in, out, n, levels, stack, blocks;
  bool tied;
  Stride stride;
  Form form;

  // 2 x 2 matrices of a block.
  std::int64_t pairs() const { return tied ? n - 1 : levels * (n / 2); }
  // The stride of the stage that is applied as number `level` of a block; every other block turns
  // round. With several blocks, factors so stand as in B B^T.
  std::int64_t stride_of(std::int64_t block, std::int64_t level) const {
    const bool grows = (stride == kIncreasing) == (block % 2 == 0);
    return std::int64_t{1} << (grows ? level : levels - 1 - level);
  }
  // Where the stage's matrices begin among those of a block.
  std::int64_t first_pair(std::int64_t block, std::int64_t level) const {
    return tied ? stride_of(block, level) - 1 : level * (n / 2);
  }
  // Stages are done in twos, the last one alone where their number is odd.
  std::int64_t groups() const { return ceil_div(levels, 2) * blocks; }
};

template <class T>
class ButterflyKernel final : public Kernel<T> {
 public:
  explicit ButterflyKernel(const Sizes& sizes) : s_(sizes) {}

  Order order() const override { return Order::Tile; }
  std::int64_t samples(bool backward) const override {
    // So many that all stages find their tile in the second cache.
    constexpr std::int64_t kMostBytes = 1 << 20;
    std::int64_t lanes = 64;
    const std::int64_t tiles = backward ? s_.groups() + 3 : 3;
    while (lanes > 16 && tiles * s_.n * lanes * std::int64_t{sizeof(T)} > kMostBytes) lanes /= 2;
    return lanes;
  }

  std::int64_t prepared_elems(bool) const override { return turned() ? twiddle_elems() : 0; }
  std::int64_t prepared_gradient_elems() const override { return prepared_elems(true); }
  void prepare(const Weights<T>& w, T* prepared) const override {
    for (std::int64_t i = 0; i < twiddle_elems() / 4; ++i) {
      const T c = std::cos(w.at[0][i]), s = std::sin(w.at[0][i]);
      T* t = prepared + 4 * i;
      t[0] = c, t[1] = -s, t[2] = s, t[3] = c;
    }
  }
  void finish(const Weights<T>& w, const Gradients<T>& gw) const override {
    if (!turned()) return;
    for (std::int64_t i = 0; i < twiddle_elems() / 4; ++i) {
      const T *t = w.prepared + 4 * i, *g = gw.prepared + 4 * i;
      gw.at[0][i] = t[1] * g[0] - t[0] * g[1] + t[0] * g[2] + t[1] * g[3];
    }
  }

  std::int64_t forward_scratch(std::int64_t lanes) const override { return s_.n * lanes; }
  std::int64_t backward_scratch(std::int64_t lanes) const override {
    return (s_.groups() + 1) * s_.n * lanes;
  }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t lanes,
               T* scratch) const override {
    for (std::int64_t k = 0; k < s_.stack; ++k) {
      const bool whole = outputs(k) == s_.n;
      T* to = y + k * s_.n * lanes;
      const T* from = padded(x, scratch, lanes);
      for (std::int64_t g = 0; g < s_.groups(); ++g) {
        T* next = whole && g + 1 == s_.groups() ? to : scratch;
        stages_kernels<T>().forward(stages(w, k, g, lanes), from, next);
        from = next;
      }
      if (!whole) std::copy_n(scratch, outputs(k) * lanes, to);
    }
  }

  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t lanes, T* scratch) const override {
    const std::int64_t tile = s_.n * lanes;
    // A tile for the input of each group; that of the first may be x.
    T *inputs = scratch, *own = scratch + s_.groups() * tile;
    const T* first = padded(x, inputs, lanes);
    // The gradient is changed in its place.
    const bool direct = gx != nullptr && s_.stack == 1 && s_.in == s_.n;
    T* g = direct ? gx : own;
    for (std::int64_t k = 0; k < s_.stack; ++k) {
      const auto input = [&](std::int64_t i) { return i == 0 ? first : inputs + i * tile; };
      for (std::int64_t i = 0; i + 1 < s_.groups(); ++i) {
        stages_kernels<T>().forward(stages(w, k, i, lanes), input(i), inputs + (i + 1) * tile);
      }
      pad(gy + k * tile, outputs(k), g, lanes);
      T* sums = turned() ? gw.prepared : gw.at[0];
      const T* twiddles = turned() ? w.prepared : w.at[0];
      for (std::int64_t i = s_.groups(); i-- > 0;) {
        const Stages<T> both = stages(w, k, i, lanes);
        T* const to[] = {sums + (both.twiddle[0] - twiddles),
                         both.count == 2 ? sums + (both.twiddle[1] - twiddles) : nullptr};
        stages_kernels<T>().backward(both, input(i), g, to);
      }
      if (gx == nullptr || direct) continue;
      for (std::int64_t i = 0; i < s_.in * lanes; ++i) gx[i] = k == 0 ? g[i] : gx[i] + g[i];
    }
  }

 private:
  bool turned() const { return s_.form == kOrthogonal; }
  std::int64_t twiddle_elems() const { return 4 * s_.stack * s_.blocks * s_.pairs(); }
  std::int64_t outputs(std::int64_t k) const { return std::min(s_.n, s_.out - k * s_.n); }

  void pad(const T* from, std::int64_t rows, T* to, std::int64_t lanes) const {
    std::copy_n(from, rows * lanes, to);
    std::fill(to + rows * lanes, to + s_.n * lanes, T{0});
  }
  // x, or where it has fewer than n features a copy with zeros.
  const T* padded(const T* x, T* to, std::int64_t lanes) const {
    if (s_.in == s_.n) return x;
    pad(x, s_.in, to, lanes);
    return to;
  }

  Stages<T> stages(const Weights<T>& w, std::int64_t k, std::int64_t group,
                   std::int64_t lanes) const {
    const std::int64_t of_block = ceil_div(s_.levels, 2);
    const std::int64_t block = group / of_block, level = group % of_block * 2;
    const T* twiddles =
        (turned() ? w.prepared : w.at[0]) + 4 * (k * s_.blocks + block) * s_.pairs();
    Stages<T> both{.rows = s_.n,
                   .lanes = lanes,
                   .count = level + 1 < s_.levels ? 2 : 1,
                   .stride = {},
                   .twiddle = {},
                   .tied = s_.tied};
    for (int i = 0; i < both.count; ++i) {
      both.stride[i] = s_.stride_of(block, level + i);
      both.twiddle[i] = twiddles + 4 * s_.first_pair(block, level + i);
    }
    return both;
  }

  Sizes s_;
};

// ---- on a GPU ----------------------------------------------------------------------------------

class ButterflyOnCuda final : public CudaKernel {
 public:
  explicit ButterflyOnCuda(const CudaButterfly& sizes) : s_(sizes) {}

  bool takes(DType dtype) const override {
    return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
  }
  std::size_t workspace_bytes(DType dtype, std::int64_t samples, bool backward) const override {
    return backward ? kButterflyCuda.backward_bytes(s_, dtype, samples)
                    : kButterflyCuda.forward_bytes(s_, dtype, samples);
  }
  void forward(const ForwardJob& job, void* workspace, void* stream) const override {
    kButterflyCuda.forward(s_, job.dtype, job.samples, job.x, job.weights[0], job.bias, job.y,
                           workspace, stream);
  }
  void backward(const BackwardJob& job, void* workspace, void* stream) const override {
    kButterflyCuda.backward(s_, job.dtype, job.samples, job.x, job.weights[0], job.grad_y,
                            job.grad_x, job.grad_weights[0], job.grad_bias, workspace, stream);
  }

 private:
  CudaButterfly s_;
};

// Null where there are no kernels, or none for these sizes.
std::unique_ptr<CudaKernel> on_cuda(const Sizes& s) {
  const std::int64_t groups = ceil_div(s.levels, 3) * s.blocks;
  constexpr std::int64_t kMostElems = std::int64_t{1} << 30;  // numbers of matrices are ints
  if (&kButterflyCuda == nullptr || s.form != kFree || s.n < CudaButterfly::kLeast ||
      s.n > CudaButterfly::kMost || groups > CudaButterfly::kMostGroups ||
      s.stack * s.blocks * s.pairs() > kMostElems) {
    return nullptr;
  }
  CudaButterfly c{.in = static_cast<int>(s.in),
                  .out = static_cast<int>(s.out),
                  .n = static_cast<int>(s.n),
                  .stack = static_cast<int>(s.stack),
                  .pairs = static_cast<int>(s.blocks * s.pairs()),
                  .tied = s.tied,
                  .grows = s.blocks == 1 && s.stride == kIncreasing,
                  .group_count = static_cast<int>(groups),
                  .groups = {}};
  CudaGroup* group = c.groups;
  for (std::int64_t block = 0; block < s.blocks; ++block) {
    for (std::int64_t level = 0; level < s.levels; level += 3, ++group) {
      group->count = static_cast<int>(std::min<std::int64_t>(3, s.levels - level));
      int exponents[3] = {}, least = 64;
      for (int i = 0; i < group->count; ++i) {
        while ((std::int64_t{1} << exponents[i]) < s.stride_of(block, level + i)) ++exponents[i];
        least = std::min(least, exponents[i]);
        group->first[i] = static_cast<int>(block * s.pairs() + s.first_pair(block, level + i));
      }
      group->lo = std::min(least, static_cast<int>(s.levels) - 3);
      for (int i = 0; i < group->count; ++i) group->bit[i] = exponents[i] - group->lo;
    }
  }
  return std::make_unique<ButterflyOnCuda>(c);
}

constexpr std::string_view kStrides[] = {"increasing", "decreasing"};
constexpr std::string_view kForms[] = {"free", "orthogonal"};
constexpr OptionInfo kOptions[] = {
    {.name = "tied",
     .summary = "blocks of a factor share their weights: 4 (n - 1) in all, not 2 n log2(n)",
     .initial = 0,
     .words = kFalseTrue},
    {.name = "stride",
     .summary = "of the factors, in the order in which they are applied",
     .initial = kIncreasing,
     .words = kStrides},
    {.name = "blocks",
     .summary = "products one after the other, every other one with its strides reversed",
     .initial = 1,
     .least = 1,
     .most = 64},
    {.name = "form",
     .summary = "any 2 x 2 matrices, or rotations, with one angle each",
     .initial = kFree,
     .words = kForms},
};

Declaration declare(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out) {
  Sizes s{.in = in,
          .out = out,
          .n = std::max<std::int64_t>(power_of_two(in), 2),
          .levels = 0,
          .stack = 0,
          .blocks = values[2],
          .tied = values[0] != 0,
          .stride = static_cast<Stride>(values[1]),
          .form = static_cast<Form>(values[3])};
  while ((std::int64_t{1} << s.levels) < s.n) ++s.levels;
  s.stack = ceil_div(out, s.n);
  Shape shape =
      s.tied ? Shape{s.stack, s.blocks, s.n - 1} : Shape{s.stack, s.blocks, s.levels, s.n / 2};
  if (s.form == kFree) {
    shape.push_back(2);
    shape.push_back(2);
  }
  const bool turned = s.form == kOrthogonal;
  Declaration d;
  d.weights = {{.name = turned ? "angle" : "twiddle",
                .shape = shape,
                .deviation = turned ? std::numbers::pi / std::sqrt(3.0) : std::sqrt(0.5)}};
  d.flops_per_sample =
      6.0 * static_cast<double>(s.stack * s.blocks * s.levels) * static_cast<double>(s.n / 2);
  const std::int64_t factors = s.blocks * s.levels, half = s.stack * s.n / 2;
  d.plain = {{.kind = PlainStep::Kind::Map, .n = half, .times = 6 * factors},  // 4 products, 2 sums
             {.kind = PlainStep::Kind::Move, .n = 2 * half, .times = factors, .saves = 2 * half}};
  d.f32 = std::make_unique<ButterflyKernel<float>>(s);
  d.f64 = std::make_unique<ButterflyKernel<double>>(s);
  d.cuda = on_cuda(s);
  return d;
}

}  // namespace

extern const Family kButterfly;
const Family kButterfly = {.name = "butterfly",
                           .summary = "a product of log2(n) sparse factors",
                           .options = kOptions,
                           .declare = declare};

}  // namespace tuckfold::structured
