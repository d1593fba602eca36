// Holes are filled from averages over 2 x 2 values, then over 2 x 2 of these, and so on: a hole takes
// the finest average that has a value in it. Arithmetic is in double, in written order.
#include "base/fill.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/element.h"
#include "base/fp_env.h"
#include "base/strided.h"

namespace tuckfold {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // no value is known there

bool is_known(double value) { return value == value; }

struct Grid {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Grid(std::int64_t height, std::int64_t width)
      : rows(height), cols(width), values(static_cast<std::size_t>(height * width), kNone) {}
  double& at(std::int64_t row, std::int64_t col) {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
};

// The mean of up to four values without a sum that could overflow; kNone where none is known.
double mean_of(const double* values, int count) {
  int known = 0;
  for (int i = 0; i < count; ++i) known += is_known(values[i]) ? 1 : 0;
  if (known == 0) return kNone;
  const double share = 1.0 / known;
  double mean = 0;
  for (int i = 0; i < count; ++i) mean += is_known(values[i]) ? values[i] * share : 0;
  return mean;
}

Grid halved(Grid& fine) {
  Grid coarse((fine.rows + 1) / 2, (fine.cols + 1) / 2);
  for (std::int64_t row = 0; row < coarse.rows; ++row) {
    for (std::int64_t col = 0; col < coarse.cols; ++col) {
      double values[4];
      int count = 0;
      for (std::int64_t y = 2 * row; y < std::min(2 * row + 2, fine.rows); ++y) {
        for (std::int64_t x = 2 * col; x < std::min(2 * col + 2, fine.cols); ++x) {
          values[count++] = fine.at(y, x);
        }
      }
      coarse.at(row, col) = mean_of(values, count);
    }
  }
  return coarse;
}

// Gives every unknown value of the finer grid one from the coarser, which has them all, and then the
// mean of its neighbours, so that steps between averages become slopes.
void refine(Grid& fine, Grid& coarse) {
  std::vector<std::int64_t> holes;
  for (std::int64_t i = 0; i < fine.rows * fine.cols; ++i) {
    double& value = fine.values[static_cast<std::size_t>(i)];
    if (is_known(value)) continue;
    holes.push_back(i);
    value = coarse.at(i / fine.cols / 2, i % fine.cols / 2);
  }
  for (const std::int64_t i : holes) {
    const std::int64_t row = i / fine.cols, col = i % fine.cols;
    double around[4];
    int count = 0;
    if (row > 0) around[count++] = fine.at(row - 1, col);
    if (row + 1 < fine.rows) around[count++] = fine.at(row + 1, col);
    if (col > 0) around[count++] = fine.at(row, col - 1);
    if (col + 1 < fine.cols) around[count++] = fine.at(row, col + 1);
    if (count > 0) fine.at(row, col) = mean_of(around, count);
  }
}

// Fills the unknown values of a plane; `otherwise` where it has no known one.
void fill_plane(Grid& plane, double otherwise) {
  std::vector<Grid> coarser;
  for (Grid* finest = &plane; finest->rows * finest->cols > 1; finest = &coarser.back()) {
    Grid next = halved(*finest);
    coarser.push_back(std::move(next));
  }
  Grid& top = coarser.empty() ? plane : coarser.back();
  if (!is_known(top.values[0])) top.values[0] = otherwise;
  for (std::size_t level = coarser.size(); level > 0; --level) {
    refine(level > 1 ? coarser[level - 2] : plane, coarser[level - 1]);
  }
}

template <class T>
void fill_all(DType dtype, std::int64_t planes, std::int64_t rows, std::int64_t cols,
              const std::uint8_t* marks, T* values) {
  const std::int64_t elems = rows * cols;
  double last_mean = 0;  // of the plane before, for one without values
  for (std::int64_t p = 0; p < planes; ++p, marks += elems, values += elems) {
    if (std::all_of(marks, marks + elems, [](std::uint8_t mark) { return mark == 0; })) {
      const double first = as_double(values[0]);
      if (std::isfinite(first)) last_mean = first;
      continue;
    }
    Grid plane(rows, cols);
    for (std::int64_t i = 0; i < elems; ++i) {
      const double value = as_double(values[i]);
      if (marks[i] == 0 && std::isfinite(value)) plane.values[static_cast<std::size_t>(i)] = value;
    }
    fill_plane(plane, last_mean);
    for (std::int64_t i = 0; i < elems; ++i) {
      if (marks[i] == 0) continue;
      const double value = plane.values[static_cast<std::size_t>(i)];
      const std::uint64_t bits = element_bits(dtype, is_whole(dtype) ? std::rint(value) : value);
      std::copy_n(reinterpret_cast<const std::byte*>(&bits), sizeof(T),
                  reinterpret_cast<std::byte*>(values + i));
    }
    last_mean = plane.values[static_cast<std::size_t>(elems - 1)];
  }
}

// The bits of the next value after one of `taken` that is not among them: one step at a time toward
// zero, and where there is none up to zero, away from it.
std::uint64_t next_to(DType dtype, std::uint64_t word, std::span<const std::uint64_t> taken) {
  const int bits = static_cast<int>(8 * size_bytes(dtype));
  const std::uint64_t sign_bit = is_float(dtype) ? std::uint64_t{1} << (bits - 1) : 0;
  const std::uint64_t largest =
      is_float(dtype) ? element_bits(dtype, std::numeric_limits<double>::infinity()) - 1
                      : ~std::uint64_t{0} >> (64 - bits);
  const std::uint64_t sign = word & sign_bit, start = word & ~sign_bit;
  const auto is_free = [&](std::uint64_t size) {
    return std::ranges::find(taken, sign | size) == taken.end();
  };
  for (std::uint64_t size = start; size > 0; --size) {
    if (is_free(size - 1)) return sign | (size - 1);
  }
  for (std::uint64_t size = start; size < largest; ++size) {
    if (is_free(size + 1)) return sign | (size + 1);
  }
  return word;
}

}  // namespace

std::optional<FillValue> fill_value_in(DType dtype, double value) {
  const FpEnv env;
  if (value != value) {  // of all NaNs, the canonical one
    return is_float(dtype) ? std::optional(FillValue{kNone}) : std::nullopt;
  }
  if (!holds(dtype, value)) return {};
  const double rounded = element_value(dtype, element_bits(dtype, value));
  if (std::isfinite(value) && !std::isfinite(rounded)) return {};
  return FillValue{rounded};
}

std::string to_string(DType dtype, FillValue value) {
  const FpEnv env;
  return element_text(dtype, element_bits(dtype, value.value));
}

FillMarks::FillMarks(DType dtype, std::span<const FillValue> fill) : dtype_(dtype) {
  const FpEnv env;
  for (const FillValue& one : fill) {
    words_.push_back(element_bits(dtype, one.value));
    if (one.value != one.value) nan_ = words_.size();
  }
  if (must_be_exact(dtype)) return;  // never packed with a loss
  std::vector<std::uint64_t> taken;
  for (const std::uint64_t word : words_) {
    const double value = element_value(dtype, word);
    if (std::isnan(value)) continue;  // it is next to nothing
    taken.push_back(word);
    if (value == 0 && is_float(dtype)) taken.push_back(element_bits(dtype, -value));
  }
  for (const std::uint64_t word : taken) steps_.push_back({word, next_to(dtype, word, taken)});
}

std::int64_t FillMarks::mark(const void* values, std::int64_t elems,
                             std::uint8_t* marks) const noexcept {
  return with_element(dtype_, [&](auto element) {
    using T = decltype(element);
    return with_word(dtype_, [&](auto zero) {
      using Word = decltype(zero);
      const auto* words = static_cast<const Word*>(values);
      const auto* typed = static_cast<const T*>(values);
      std::fill_n(marks, elems, std::uint8_t{0});
      for (std::size_t k = words_.size(); k > 0; --k) {
        const Word word = static_cast<Word>(words_[k - 1]);
        for (std::int64_t i = 0; i < elems; ++i) {
          if (words[i] == word) marks[i] = static_cast<std::uint8_t>(k);
        }
      }
      if (nan_ > 0) {
        for (std::int64_t i = 0; i < elems; ++i) {
          const double value = as_double(typed[i]);
          if (value != value) marks[i] = static_cast<std::uint8_t>(nan_);
        }
      }
      return elems - std::count(marks, marks + elems, std::uint8_t{0});
    });
  });
}

bool FillMarks::restore(const std::uint8_t* marks, const TensorView& out) const noexcept {
  const FlatWriter writer(out);
  void* const dense = writer.dense(0, writer.elems());
  return with_word(dtype_, [&](auto zero) {
    using Word = decltype(zero);
    for (std::int64_t i = 0; i < writer.elems(); ++i) {
      if (marks[i] == 0) continue;
      if (marks[i] > words_.size()) return false;
      const Word word = static_cast<Word>(words_[marks[i] - 1u]);
      if (dense != nullptr) {
        static_cast<Word*>(dense)[i] = word;
      } else {
        writer.scatter_bytes(i, 1, &word);
      }
    }
    return true;
  });
}

void FillMarks::step_aside(const TensorView& out) const noexcept {
  constexpr std::int64_t kBlock = 1024;  // values at a time: what is not contiguous is copied
  const FlatWriter writer(out);
  const FlatReader reader(ConstTensorView{out});
  with_word(dtype_, [&](auto zero) {
    using Word = decltype(zero);
    Word copy[kBlock];
    for (std::int64_t at = 0; at < writer.elems(); at += kBlock) {
      const std::int64_t count = std::min(kBlock, writer.elems() - at);
      auto* const dense = static_cast<Word*>(writer.dense(at, count));
      Word* const values = dense != nullptr ? dense : copy;
      if (dense == nullptr) reader.gather_bytes(at, count, copy);
      for (const Step& step : steps_) {
        const auto from = static_cast<Word>(step.from), to = static_cast<Word>(step.to);
        for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] == from ? to : values[i];
      }
      if (dense == nullptr) writer.scatter_bytes(at, count, copy);
    }
  });
}

void fill_holes(DType dtype, const Shape& shape, const std::uint8_t* marks, void* values) {
  const FpEnv env;
  const std::size_t rank = shape.rank();
  const std::int64_t cols = rank > 0 ? shape[rank - 1] : 1;
  const std::int64_t rows = rank > 1 ? shape[rank - 2] : 1;
  const std::int64_t elems = shape.elems();
  if (elems == 0) return;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    fill_all(dtype, elems / (rows * cols), rows, cols, marks, static_cast<T*>(values));
  });
}

}  // namespace tuckfold
