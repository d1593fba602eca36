// A layer with random weights, and its matrix by the references.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "structured/block_diagonal/block_diagonal_ref.h"
#include "structured/butterfly/butterfly_ref.h"
#include "structured/circulant/circulant_ref.h"
#include "structured/fastfood/fastfood_ref.h"
#include "structured/low_rank/low_rank_ref.h"
#include "structured/monarch/monarch_ref.h"
#include "structured/pixelfly/pixelfly_ref.h"
#include "tuckfold/structured.h"

namespace tuckfold::structured {

struct LayerFixture {
  StructuredLayer layer;
  WeightsRef weights;  // as doubles, permutations too
  std::vector<std::int64_t> permutation;

  LayerFixture(const std::string& text, std::int64_t in, std::int64_t out, unsigned seed = 1)
      : layer(text, in, out) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (const WeightInfo& info : layer.weights()) {
      std::vector<double>& values = weights.emplace_back();
      if (!info.trained) {
        for (std::int64_t i = 0; i < info.shape.elems(); ++i) permutation.push_back(i);
        std::shuffle(permutation.begin(), permutation.end(), random);
        values.assign(permutation.begin(), permutation.end());
        continue;
      }
      for (std::int64_t i = 0; i < info.shape.elems(); ++i) {
        values.push_back(info.deviation * normal(random));
      }
    }
  }

  // `held` keeps the memory of the views.
  template <class T>
  std::vector<ConstTensorView> views(std::vector<std::vector<T>>& held, DType dtype) const {
    std::vector<ConstTensorView> all;
    held.clear();
    held.reserve(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const WeightInfo& info = layer.weights()[i];
      if (!info.trained) {
        all.emplace_back(permutation.data(), DType::I64, info.shape);
        continue;
      }
      held.emplace_back(weights[i].begin(), weights[i].end());
      all.emplace_back(held.back().data(), dtype, info.shape);
    }
    return all;
  }

  // By the definitions; for pixelfly of form=sum alone.
  MatrixRef dense() const {
    const std::string& text = layer.text();
    const std::int64_t in = layer.in(), out = layer.out();
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    const auto number = [&](const std::string& key, std::int64_t initial) {
      const auto at = text.find(key + "=");
      return at == std::string::npos ? initial : std::stoll(text.substr(at + key.size() + 1));
    };
    if (text.starts_with("butterfly")) {
      return ButterflyRef{.tied = has("tied=true"),
                          .increasing = !has("decreasing"),
                          .orthogonal = has("orthogonal"),
                          .blocks = number("blocks", 1)}
          .dense(weights, in, out);
    }
    if (text.starts_with("low_rank")) {
      return low_rank_ref(weights[0], weights[1], number("rank", 8), in, out);
    }
    if (text.starts_with("block_diagonal")) {
      return block_diagonal_ref(weights[0], number("blocks", 4), in, out);
    }
    if (text.starts_with("monarch")) return monarch_ref(weights, number("blocks", 4), in, out);
    if (text.starts_with("circulant")) return circulant_ref(weights[0], in, out);
    if (text.starts_with("fastfood")) {
      return fastfood_ref(weights, !has("normalize=false"), in, out);
    }
    if (text.starts_with("pixelfly")) {
      MatrixRef m =
          pixelfly_sparse_ref(weights[0], number("block", 32), number("butterfly", 16), in, out);
      const MatrixRef low = low_rank_ref(weights[1], weights[2], number("rank", 16), in, out);
      for (std::size_t i = 0; i < m.values.size(); ++i) m.values[i] += low.values[i];
      return m;
    }
    MatrixRef m(out, in);
    m.values = weights[0];
    return m;
  }
};

}  // namespace tuckfold::structured
