// A flat block butterfly and a low rank: W = sparse + second * first, or each sample's own mixture of
// the two.
#include "structured/pixelfly/pixelfly.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "structured/family.h"
#include "structured/low_rank/low_rank.h"

namespace tuckfold::structured {

std::vector<PixelflyBlock> pixelfly_blocks(std::int64_t block, std::int64_t size,
                                           std::int64_t factors, std::int64_t in,
                                           std::int64_t out) {
  const std::int64_t rows = ceil_div(out, block), cols = ceil_div(in, block);
  std::int64_t cells = 1;  // the finest butterfly that blocks can show
  while (2 * cells <= std::min({size, rows, cols})) cells *= 2;
  // Cells of a wanted butterfly that are smaller than a block fall into the diagonal.
  std::int64_t most = 0;
  for (std::int64_t k = 0; (std::int64_t{1} << k) < size; ++k) {
    if (factors > 0 && k >= factors) break;
    if ((std::int64_t{1} << k) >= size / cells) ++most;
  }
  std::vector<PixelflyBlock> blocks;
  for (std::int64_t col = 0; col < cols; ++col) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t apart = (row * cells / rows) ^ (col * cells / cols);
      const bool connected = apart == 0 || ((apart & (apart - 1)) == 0 && apart < (1LL << most));
      if (connected) blocks.push_back({row, col});
    }
  }
  return blocks;
}

namespace {

enum Form : std::int64_t { kSum, kGated, kMean };
constexpr std::string_view kForms[] = {"sum", "gated", "mean"};

struct Sizes {
  std::int64_t block, in, out;
  Form form;
  LowRank low_rank;
  std::vector<PixelflyBlock> blocks;

  std::int64_t inputs(const PixelflyBlock& b) const { return std::min(block, in - b.in * block); }
  std::int64_t outputs(const PixelflyBlock& b) const {
    return std::min(block, out - b.out * block);
  }
  std::int64_t block_elems() const {
    return static_cast<std::int64_t>(blocks.size()) * block * block;
  }
};

template <class T>
class PixelflyKernel final : public Kernel<T> {
 public:
  explicit PixelflyKernel(const Sizes& sizes) : s_(sizes) {}

  std::int64_t prepared_elems(bool) const override {
    return s_.block_elems() + s_.low_rank.prepared_elems();
  }
  void prepare(const Weights<T>& w, T* prepared) const override {
    const std::int64_t square = s_.block * s_.block;
    for (std::int64_t at = 0; at < s_.block_elems(); at += square) {
      loops<T>().transpose(w.at[0] + at, s_.block, s_.block, s_.block, prepared + at, s_.block);
    }
    s_.low_rank.prepare(w.at[1], w.at[2], prepared + s_.block_elems());
  }
  std::int64_t forward_scratch(std::int64_t samples) const override {
    return samples * (s_.low_rank.rank + s_.out + 1);
  }
  std::int64_t backward_scratch(std::int64_t samples) const override {
    return samples * (2 * s_.low_rank.rank + 2 * s_.out + 1);
  }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t samples,
               T* scratch) const override {
    T *h = scratch, *sparse = h + samples * s_.low_rank.rank, *gate = sparse + samples * s_.out;
    s_.low_rank.forward(w.prepared + s_.block_elems(), x, y, samples, h);
    if (s_.form == kSum) {
      add_sparse(w, x, y, samples);
      return;
    }
    std::fill_n(sparse, samples * s_.out, T{0});
    add_sparse(w, x, sparse, samples);
    gates(w, x, samples, gate);
    for (std::int64_t b = 0; b < samples; ++b) {
      T *low = y + b * s_.out, *other = sparse + b * s_.out;
      for (std::int64_t o = 0; o < s_.out; ++o) low[o] = other[o] + gate[b] * (low[o] - other[o]);
    }
  }

  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t samples, T* scratch) const override {
    T *h = scratch, *g_low = h + 2 * samples * s_.low_rank.rank;
    T *g_sparse = g_low + samples * s_.out, *gate = g_sparse + samples * s_.out;
    if (s_.form == kSum) {
      back(w, gw, x, gy, gy, gx, samples, h);
      return;
    }
    gates(w, x, samples, gate);
    if (s_.form == kGated) {
      // The gradient of the gate wants both parts of y; it replaces the gate's value once that has
      // been used.
      s_.low_rank.forward(w.prepared + s_.block_elems(), x, g_low, samples, h);
      std::fill_n(g_sparse, samples * s_.out, T{0});
      add_sparse(w, x, g_sparse, samples);
    }
    for (std::int64_t b = 0; b < samples; ++b) {
      const T g = gate[b];
      const T* from = gy + b * s_.out;
      T *low = g_low + b * s_.out, *sparse = g_sparse + b * s_.out, slope = 0;
      if (s_.form == kGated) {
        for (std::int64_t o = 0; o < s_.out; ++o) slope += from[o] * (low[o] - sparse[o]);
      }
      for (std::int64_t o = 0; o < s_.out; ++o) {
        low[o] = g * from[o];
        sparse[o] = from[o] - low[o];
      }
      gate[b] = slope * g * (1 - g);
    }
    back(w, gw, x, g_low, g_sparse, gx, samples, h);
    if (s_.form != kGated) return;
    for (std::int64_t b = 0; b < samples; ++b) {
      const T* row = x + b * s_.in;
      for (std::int64_t i = 0; i < s_.in; ++i) gw.at[3][i] += gate[b] * row[i];
      gw.at[4][0] += gate[b];
      if (gx == nullptr) continue;
      for (std::int64_t i = 0; i < s_.in; ++i) gx[b * s_.in + i] += gate[b] * w.at[3][i];
    }
  }

 private:
  void add_sparse(const Weights<T>& w, const T* x, T* y, std::int64_t samples) const {
    const T* weights = w.prepared;
    for (const PixelflyBlock& b : s_.blocks) {
      multiply_rows<T>(samples, s_.inputs(b), s_.outputs(b), {x + b.in * s_.block, s_.in}, weights,
                       s_.block, y + b.out * s_.block, s_.out, true);
      weights += s_.block * s_.block;
    }
  }
  // How much of the low rank each sample takes.
  void gates(const Weights<T>& w, const T* x, std::int64_t samples, T* gate) const {
    for (std::int64_t b = 0; b < samples; ++b) {
      gate[b] = T{0.5};
      if (s_.form != kGated) continue;
      T sum = w.at[4][0];
      for (std::int64_t i = 0; i < s_.in; ++i) sum += w.at[3][i] * x[b * s_.in + i];
      gate[b] = 1 / (1 + std::exp(-sum));
    }
  }
  void back(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* g_low,
            const T* g_sparse, T* gx, std::int64_t samples, T* scratch) const {
    s_.low_rank.backward(w.at[1], w.at[2], w.prepared + s_.block_elems(), gw.at[1], gw.at[2], x,
                         g_low, gx, false, samples, scratch);
    std::int64_t at = 0;
    for (const PixelflyBlock& b : s_.blocks) {
      const std::int64_t in = s_.inputs(b), out = s_.outputs(b);
      const Features<T> g{g_sparse + b.out * s_.block, s_.out};
      add_outer<T>(samples, in, out, g, x + b.in * s_.block, s_.in, gw.at[0] + at, s_.block);
      if (gx != nullptr) {
        multiply_rows<T>(samples, out, in, g, w.at[0] + at, s_.block, gx + b.in * s_.block, s_.in,
                         true);
      }
      at += s_.block * s_.block;
    }
  }
  Sizes s_;
};

constexpr std::int64_t kMost = 1 << 20;
constexpr OptionInfo kOptions[] = {
    {.name = "block", .summary = "side of a block", .initial = 32, .least = 1, .most = 4096},
    {.name = "butterfly",
     .summary = "size of the butterfly, a power of two",
     .initial = 16,
     .least = 1,
     .most = kMost},
    {.name = "rank", .summary = "of the other part", .initial = 16, .least = 1, .most = kMost},
    {.name = "factors",
     .summary = "of the butterfly, from the diagonal out; 0 takes all",
     .initial = 0,
     .least = 0,
     .most = 20},
    {.name = "form",
     .summary = "sum of both parts, mixed by a gate of each sample, or their mean",
     .initial = kSum,
     .words = kForms},
};

Declaration declare(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out) {
  const std::int64_t block = values[0], size = values[1];
  if (block > std::min(in, out)) {
    invalid("[structure] pixelfly: block must be 1..{} for {} to {} features, got {}",
            std::min(in, out), in, out, block);
  }
  if ((size & (size - 1)) != 0) {
    invalid("[structure] pixelfly: butterfly must be a power of two, got {}; {} is the next", size,
            power_of_two(size));
  }
  Sizes s{.block = block,
          .in = in,
          .out = out,
          .form = static_cast<Form>(values[4]),
          .low_rank = {in, out, values[2]},
          .blocks = pixelfly_blocks(block, size, values[3], in, out)};
  s.low_rank.check("pixelfly");
  // Two parts of half the variance, or as much as gives that of x after their mean.
  const double part = s.form == kSum ? std::sqrt(0.5) : std::sqrt(2.0);
  const auto count = static_cast<std::int64_t>(s.blocks.size());
  const double fan_in =
      static_cast<double>(count * block) / static_cast<double>(ceil_div(out, block));
  Declaration d;
  d.weights = {
      {.name = "blocks", .shape = {count, block, block}, .deviation = part / std::sqrt(fan_in)}};
  for (WeightInfo& info : s.low_rank.weights(part)) d.weights.push_back(info);
  d.flops_per_sample = 2.0 * static_cast<double>(s.block_elems()) + s.low_rank.flops();
  if (s.form == kGated) {
    d.weights.push_back(
        {.name = "gate", .shape = {in}, .deviation = 1 / std::sqrt(static_cast<double>(in))});
    d.weights.push_back({.name = "gate_bias", .shape = {1}});
    d.flops_per_sample += 2.0 * static_cast<double>(in);
  }
  const std::int64_t rows = ceil_div(out, block), each = ceil_div(count, rows) * block;
  d.plain = {{.kind = PlainStep::Kind::Move, .n = count * block},  // each block's inputs
             {.kind = PlainStep::Kind::Product,
              .n = block,
              .k = each,
              .groups = rows,
              .saves = count * block},
             {.kind = PlainStep::Kind::Move, .n = out}};
  for (const PlainStep& step : s.low_rank.plain()) d.plain.push_back(step);
  d.plain.push_back({.kind = PlainStep::Kind::Map, .n = out});
  d.f32 = std::make_unique<PixelflyKernel<float>>(s);
  d.f64 = std::make_unique<PixelflyKernel<double>>(s);
  return d;
}

}  // namespace

extern const Family kPixelfly;
const Family kPixelfly = {.name = "pixelfly",
                          .summary = "a flat block butterfly and a low rank",
                          .options = kOptions,
                          .declare = declare};

}  // namespace tuckfold::structured
