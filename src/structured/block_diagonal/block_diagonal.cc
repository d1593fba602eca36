// Blocks along the diagonal: features i of block k give outputs of block k alone. Where sizes are no
// multiples of the number of blocks, the last ones are cut; weights of what is cut off do nothing.
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "structured/family.h"
#include "structured/tile/rows.h"

namespace tuckfold::structured {
namespace {

template <class T>
class BlockDiagonalKernel final : public Kernel<T> {
 public:
  BlockDiagonalKernel(std::int64_t blocks, std::int64_t in, std::int64_t out)
      : blocks_(blocks), in_(in), out_(out), i_(ceil_div(in, blocks)), o_(ceil_div(out, blocks)) {}

  std::int64_t prepared_elems(bool backward) const override {
    return backward ? 0 : blocks_ * i_ * o_;
  }
  void prepare(const Weights<T>& w, T* prepared) const override {
    for (std::int64_t b = 0; b < blocks_; ++b) {
      loops<T>().transpose(w.at[0] + b * i_ * o_, i_, o_, i_, prepared + b * i_ * o_, o_);
    }
  }
  std::int64_t forward_scratch(std::int64_t) const override { return 0; }
  std::int64_t backward_scratch(std::int64_t) const override { return 0; }

  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t samples, T*) const override {
    for (std::int64_t b = 0; b < blocks_; ++b) {
      multiply_rows<T>(samples, wide(b, in_, i_), wide(b, out_, o_), {x + b * i_, in_},
                       w.prepared + b * i_ * o_, o_, y + b * o_, out_);
    }
  }
  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t samples, T*) const override {
    for (std::int64_t b = 0; b < blocks_; ++b) {
      const std::int64_t in = wide(b, in_, i_), out = wide(b, out_, o_);
      if (in == 0) continue;
      const Features<T> g{gy + b * o_, out_};
      if (gx != nullptr) {
        multiply_rows<T>(samples, out, in, g, w.at[0] + b * i_ * o_, i_, gx + b * i_, in_);
      }
      add_outer<T>(samples, in, out, g, x + b * i_, in_, gw.at[0] + b * i_ * o_, i_);
    }
  }

 private:
  // Of block b's `each` features those that there are.
  static std::int64_t wide(std::int64_t b, std::int64_t all, std::int64_t each) {
    return std::clamp<std::int64_t>(all - b * each, 0, each);
  }
  std::int64_t blocks_, in_, out_, i_, o_;
};

constexpr OptionInfo kOptions[] = {{.name = "blocks",
                                    .summary = "how many along the diagonal",
                                    .initial = 4,
                                    .least = 1,
                                    .most = 1 << 20}};

Declaration declare(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out) {
  const std::int64_t blocks = values[0], i = ceil_div(in, blocks), o = ceil_div(out, blocks);
  if (blocks > std::min(in, out)) {
    invalid("[structure] block_diagonal: blocks must be 1..{} for {} to {} features, got {}",
            std::min(in, out), in, out, blocks);
  }
  Declaration d;
  d.weights = {{.name = "blocks",
                .shape = {blocks, o, i},
                .deviation = 1 / std::sqrt(static_cast<double>(i))}};
  d.flops_per_sample = 2.0 * static_cast<double>(blocks * i) * static_cast<double>(o);
  d.plain = {
      {.kind = PlainStep::Kind::Move, .n = blocks * i},
      {.kind = PlainStep::Kind::Product, .n = o, .k = i, .groups = blocks, .saves = blocks * i},
      {.kind = PlainStep::Kind::Move, .n = blocks * o}};
  d.f32 = std::make_unique<BlockDiagonalKernel<float>>(blocks, in, out);
  d.f64 = std::make_unique<BlockDiagonalKernel<double>>(blocks, in, out);
  return d;
}

}  // namespace

extern const Family kBlockDiagonal;
const Family kBlockDiagonal = {.name = "block_diagonal",
                               .summary = "independent blocks along the diagonal",
                               .options = kOptions,
                               .declare = declare};

}  // namespace tuckfold::structured
