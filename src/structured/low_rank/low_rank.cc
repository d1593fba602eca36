// W = second * first with few rows in between.
#include "structured/low_rank/low_rank.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "structured/family.h"

namespace tuckfold::structured {
namespace {

template <class T>
class LowRankKernel final : public Kernel<T> {
 public:
  explicit LowRankKernel(const LowRank& sizes) : low_rank_(sizes) {}

  std::int64_t prepared_elems(bool) const override { return low_rank_.prepared_elems(); }
  void prepare(const Weights<T>& w, T* prepared) const override {
    low_rank_.prepare(w.at[0], w.at[1], prepared);
  }
  std::int64_t forward_scratch(std::int64_t samples) const override {
    return samples * low_rank_.rank;
  }
  std::int64_t backward_scratch(std::int64_t samples) const override {
    return 2 * samples * low_rank_.rank;
  }
  void forward(const Weights<T>& w, const T* x, T* y, std::int64_t samples, T* h) const override {
    low_rank_.forward(w.prepared, x, y, samples, h);
  }
  void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                std::int64_t samples, T* scratch) const override {
    low_rank_.backward(w.at[0], w.at[1], w.prepared, gw.at[0], gw.at[1], x, gy, gx, false, samples,
                       scratch);
  }

 private:
  LowRank low_rank_;
};

constexpr OptionInfo kOptions[] = {
    {.name = "rank", .summary = "rows in between", .initial = 8, .least = 1, .most = 1 << 20}};

Declaration declare(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out) {
  const LowRank sizes{in, out, values[0]};
  sizes.check("low_rank");
  Declaration d;
  d.weights = sizes.weights();
  d.flops_per_sample = sizes.flops();
  d.plain = sizes.plain();
  d.f32 = std::make_unique<LowRankKernel<float>>(sizes);
  d.f64 = std::make_unique<LowRankKernel<double>>(sizes);
  return d;
}

}  // namespace

void LowRank::check(std::string_view family) const {
  if (rank <= std::min(in, out)) return;
  invalid("[structure] {}: rank must be 1..{} for {} to {} features, got {}", family,
          std::min(in, out), in, out, rank);
}

std::vector<PlainStep> LowRank::plain() const {
  return {{.kind = PlainStep::Kind::Product, .n = rank, .k = in, .saves = in},
          {.kind = PlainStep::Kind::Product, .n = out, .k = rank, .saves = rank}};
}

std::vector<WeightInfo> LowRank::weights(double deviation) const {
  return {
      {.name = "first", .shape = {rank, in}, .deviation = 1 / std::sqrt(static_cast<double>(in))},
      {.name = "second",
       .shape = {out, rank},
       .deviation = deviation / std::sqrt(static_cast<double>(rank))}};
}

extern const Family kLowRank;
const Family kLowRank = {.name = "low_rank",
                         .summary = "a product of two narrow matrices",
                         .options = kOptions,
                         .declare = declare};

}  // namespace tuckfold::structured
