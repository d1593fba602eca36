// y = (x first^T) second^T, alone or as a part of another family.
#pragma once

#include <string_view>
#include <vector>

#include "structured/family.h"
#include "structured/tile/rows.h"
#include "tuckfold/structured.h"

namespace tuckfold::structured {

struct LowRank {
  std::int64_t in, out, rank;

  void check(std::string_view family) const;
  std::vector<WeightInfo> weights(double deviation = 1) const;
  std::vector<PlainStep> plain() const;
  double flops() const { return 2.0 * static_cast<double>(rank) * static_cast<double>(in + out); }

  // Both matrices transposed.
  std::int64_t prepared_elems() const { return rank * (in + out); }
  template <class T>
  void prepare(const T* first, const T* second, T* prepared) const {
    loops<T>().transpose(first, in, rank, in, prepared, rank);
    loops<T>().transpose(second, rank, out, rank, prepared + in * rank, out);
  }

  // h is room for samples x rank.
  template <class T>
  void forward(const T* prepared, const T* x, T* y, std::int64_t samples, T* h) const {
    multiply_rows<T>(samples, in, rank, {x, in}, prepared, rank, h, rank);
    multiply_rows<T>(samples, rank, out, {h, rank}, prepared + in * rank, out, y, out);
  }

  // Twice the room; adds to gx where `add`.
  template <class T>
  void backward(const T* first, const T* second, const T* prepared, T* g_first, T* g_second,
                const T* x, const T* gy, T* gx, bool add, std::int64_t samples, T* scratch) const {
    T *h = scratch, *gh = scratch + samples * rank;
    multiply_rows<T>(samples, in, rank, {x, in}, prepared, rank, h, rank);
    multiply_rows<T>(samples, out, rank, {gy, out}, second, rank, gh, rank);
    add_outer<T>(samples, rank, out, {gy, out}, h, rank, g_second, rank);
    add_outer<T>(samples, in, rank, {gh, rank}, x, in, g_first, in);
    if (gx != nullptr) multiply_rows<T>(samples, rank, in, {gh, rank}, first, in, gx, in, add);
  }
};

}  // namespace tuckfold::structured
