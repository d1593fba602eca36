// Products of samples that lie one after the other with a small matrix of weights.
#pragma once

#include "structured/tile/tile.h"

namespace tuckfold::structured {

// Features [0, count) of samples: at[sample * row + feature * col].
template <class T>
struct Features {
  const T* at;
  std::int64_t row, col = 1;
};

// y (samples x out) = x (samples x in) * w, where w is in x out; or += where `add`.
template <class T>
void multiply_rows(std::int64_t samples, std::int64_t in, std::int64_t out, Features<T> x,
                   const T* w, std::int64_t w_row, T* y, std::int64_t y_row, bool add = false) {
  multiply(Product<T>{.m = samples,
                      .n = out,
                      .k = in,
                      .a = {x.at, x.row, x.col},
                      .b = w,
                      .b_row = w_row,
                      .c = y,
                      .c_row = y_row,
                      .add = add});
}

// gw (out x in) += the sum over samples of gy^T x; x's features must be neighbours.
template <class T>
void add_outer(std::int64_t samples, std::int64_t in, std::int64_t out, Features<T> gy, const T* x,
               std::int64_t x_row, T* gw, std::int64_t gw_row) {
  multiply(Product<T>{.m = out,
                      .n = in,
                      .k = samples,
                      .a = {gy.at, gy.col, gy.row},
                      .b = x,
                      .b_row = x_row,
                      .c = gw,
                      .c_row = gw_row,
                      .add = true});
}

}  // namespace tuckfold::structured
