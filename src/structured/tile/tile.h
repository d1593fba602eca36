// The few loops that structured layers are made of, on the vectors of this machine.
//
// A tile is `rows` x `lanes` numbers, the batch last: row r holds feature r of `lanes` samples, so that
// a factor that mixes features is the same for all lanes of a vector. Lanes are a multiple of kLanes.
// Sums are taken in an order that depends on sizes and the machine's vectors, not on threads.
#pragma once

#include <cstdint>

namespace tuckfold::structured {

inline constexpr std::int64_t kLanes = 16;

// A matrix by its strides: at[i * row + j * col].
template <class T>
struct Strided {
  const T* at;
  std::int64_t row, col;
};

// c (m x n) = a (m x k) * b (k x n), or += where `add`. Rows of b and c are contiguous.
template <class T>
struct Product {
  std::int64_t m, n, k;
  Strided<T> a;
  const T* b;
  std::int64_t b_row;
  T* c;
  std::int64_t c_row;
  bool add;
};
void multiply(const Product<float>& job) noexcept;
void multiply(const Product<double>& job) noexcept;

// What runs on tiles: `loops<float>().hadamard(tile, rows, lanes)`.
template <class T>
struct Loops {
  using Count = std::int64_t;

  // out[c * out_row + r] = in[r * in_row + c].
  void (*transpose)(const T* in, Count in_row, Count rows, Count cols, T* out, Count out_row);
  // Row r times scale[r]; `out` may be `in`.
  void (*scale_rows)(const T* in, const T* scale, Count rows, Count lanes, T* out);
  // sums[r] += the sum over lanes of a's row r times b's; where b is null, of a's row.
  void (*add_row_dots)(const T* a, const T* b, Count rows, Count lanes, T* sums);
  // The unnormalized Hadamard transform of the rows, a power of two, in place: Sylvester's, in natural
  // order.
  void (*hadamard)(T* tile, Count rows, Count lanes);
  // Fourier transforms of the rows, a power of two, in place. The first half of the lanes are real
  // parts, the other half imaginary ones. `roots` has exp(-2 pi i k / rows) for k < rows / 2, real and
  // imaginary parts in turn. fft leaves its result in bit-reversed order, which inverse_fft takes; the
  // inverse is not divided by rows.
  void (*fft)(T* tile, Count rows, Count lanes, const T* roots);
  void (*inverse_fft)(T* tile, Count rows, Count lanes, const T* roots);
  // Row r times the complex number at spectrum[2 r], or its conjugate, in place.
  void (*scale_complex)(T* tile, const T* spectrum, bool conjugate, Count rows, Count lanes);
  // sums[2 r] and [2 r + 1] += the sum over lanes of conj(a) * b of row r.
  void (*add_complex_dots)(const T* a, const T* b, Count rows, Count lanes, T* sums);
};
template <class T>
const Loops<T>& loops() noexcept;

}  // namespace tuckfold::structured
