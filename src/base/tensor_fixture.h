// Tensors for tests: the same values in every dtype, in every arrangement in memory.
//
//   Tensor in(DType::F16, {3, 16, 16}, Order::ChannelsLast);
//   in.fill(pattern(Pattern::Random, DType::F16, in.elems()));
//   pack(spec, in.view(), packed);
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "tuckfold/tensor.h"

namespace tuckfold::ref {

// What lossy codecs take.
inline constexpr std::array kLossyDTypes = {DType::F32, DType::F16, DType::BF16,
                                            DType::F64, DType::U8,  DType::U16};

// What CUDA kernels take: all, and those of lossy codecs.
inline constexpr std::span<const DType> kDeviceDTypes = std::span(kDTypes).first(7);
inline constexpr std::span<const DType> kDeviceLossyDTypes = std::span(kDTypes).first(5);

inline constexpr std::byte kUntouched{0xa5};

// Bytes that begin `shift` past a cache line and end where the allocation does, so that
// AddressSanitizer sees the first byte too many.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, std::size_t shift = 0)
      : storage_(static_cast<std::byte*>(
            ::operator new (shift + bytes + (bytes == 0 ? 1 : 0), std::align_val_t{64}))),
        shift_(shift),
        bytes_(bytes) {
    std::fill_n(data(), bytes, kUntouched);
  }
  std::byte* data() const { return storage_.get() + shift_; }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { ::operator delete (pointer, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> storage_;
  std::size_t shift_, bytes_;
};

// ---- elements as doubles ------------------------------------------------------------------------

inline double get(DType dtype, const void* data, std::int64_t index) {
  return with_element(dtype, [&](auto element) {
    return as_double(static_cast<const decltype(element)*>(data)[index]);
  });
}

// Rounds to nearest even; numbers that an f16, a bf16 or a whole number cannot hold become the
// nearest that it can, and NaN becomes 0 in whole numbers.
inline void set(DType dtype, void* data, std::int64_t index, double value) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    T& to = static_cast<T*>(data)[index];
    if constexpr (std::is_same_v<T, F16>) {
      to = to_f16_saturated(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, BF16>) {
      to = to_bf16_saturated(static_cast<float>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      to = static_cast<T>(value);
    } else {
      const double whole = std::isnan(value) ? 0.0 : std::nearbyint(value);
      const double most =
          dtype == DType::Bool ? 1 : static_cast<double>(std::numeric_limits<T>::max());
      // The largest i64 and u64 are no doubles, and the nearest is past them.
      to =
          whole >= most
              ? (dtype == DType::Bool ? T{1} : std::numeric_limits<T>::max())
              : static_cast<T>(std::max(whole, static_cast<double>(std::numeric_limits<T>::min())));
    }
  });
}

// ---- values -------------------------------------------------------------------------------------

// Uniform between the two.
inline std::vector<float> random_values(std::size_t count, float low, float high,
                                        unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

enum class Pattern { Random, Constant, Ramp, Impulse, Hostile };

// Half of what whole-number dtypes hold, but 0..255 for u8, -255..255 for i32 and i64, 0 and 1 for
// bool; the others get numbers about 1 that are no f32 values.
inline double scale_of(DType dtype) {
  switch (dtype) {
    case DType::U8:
    case DType::I32:
    case DType::I64: return 255;
    case DType::U16: return 0x1p15;
    case DType::I16: return 0x1p14;
    case DType::I8: return 0x1p6;
    case DType::U32: return 0x1p31;
    case DType::U64: return 0x1p63;
    default: return 1;
  }
}
inline std::vector<double> pattern(Pattern kind, DType dtype, std::int64_t elems,
                                   unsigned seed = 1) {
  using Float = std::numeric_limits<float>;
  const double hostile[] = {0.0,
                            -0.0,
                            Float::denorm_min(),
                            -Float::denorm_min(),
                            Float::min(),
                            -Float::min(),
                            Float::max(),
                            -Float::max(),
                            1e-39,
                            65504.0,
                            65520.0,
                            6e-8,
                            1e-3,
                            -1.0,
                            Float::infinity(),
                            -Float::infinity(),
                            Float::quiet_NaN()};
  std::mt19937 random(seed);
  const bool whole = is_whole(dtype);
  const bool has_sign =
      info_of(dtype).kind == DTypeKind::Float || info_of(dtype).kind == DTypeKind::Signed;
  const double scale = scale_of(dtype);
  const auto uniform = [&](double from) {
    return from + (scale - from) * static_cast<double>(random()) / 4294967295.0;
  };
  std::vector<double> values(static_cast<std::size_t>(elems));
  for (std::int64_t i = 0; i < elems; ++i) {
    double value = 0;
    switch (kind) {
      case Pattern::Random: value = uniform(has_sign ? -scale : 0); break;
      case Pattern::Constant: value = 0.7 * scale; break;
      case Pattern::Ramp:
        value = scale * static_cast<double>(i) / static_cast<double>(elems);
        break;
      case Pattern::Impulse: value = i % 97 == 41 ? scale : 0.0; break;
      case Pattern::Hostile:
        // Whole stretches of one kind, so that not every block holds a NaN.
        value = i / 512 % 3 == 0 ? hostile[random() % std::size(hostile)]
                                 : hostile[static_cast<std::size_t>(i / 1536) % 14] * uniform(0);
        break;
    }
    values[static_cast<std::size_t>(i)] =
        whole && std::isfinite(value) ? std::nearbyint(value) : value;
  }
  return values;
}

// ---- arrangements -------------------------------------------------------------------------------

// PaddedRows have three elements between rows, PaddedLines as many as leave rows at multiples of 32.
enum class Order {
  RowMajor,
  Fortran,
  ChannelsLast,
  PaddedRows,
  Gapped,
  Flipped,
  Backwards,
  Transposed,
  PaddedLines
};
inline constexpr Order kOrders[] = {Order::RowMajor,   Order::Fortran, Order::ChannelsLast,
                                    Order::PaddedRows, Order::Gapped,  Order::Flipped,
                                    Order::Backwards};

// Owns its elements and accesses them by row-major index, for any strides.
class Tensor {
 public:
  Tensor(DType dtype, const Shape& shape, Order order = Order::RowMajor, std::size_t shift = 0)
      : dtype_(dtype), shape_(shape), strides_(shape), storage_(arrange(order), shift) {}

  TensorView view() const { return {data(), dtype_, shape_, strides_}; }
  // All bytes from the first element's to the last one's, those between elements too; and the same
  // view of a copy of them.
  std::span<std::byte> storage() const { return storage_.span(); }
  TensorView view_of_copy(std::byte* copy, Device device) const {
    return {copy + (static_cast<std::byte*>(data()) - storage_.data()), dtype_, shape_, strides_,
            device};
  }
  std::int64_t elems() const { return shape_.elems(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }

  double get(std::int64_t index) const { return ref::get(dtype_, data(), offset(index)); }
  std::vector<double> values() const {
    std::vector<double> all(static_cast<std::size_t>(elems()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = get(static_cast<std::int64_t>(i));
    return all;
  }
  Tensor& fill(std::span<const double> values) {
    for (std::int64_t i = 0; i < elems(); ++i) {
      ref::set(dtype_, data(), offset(i), values[static_cast<std::size_t>(i)]);
    }
    return *this;
  }
  Tensor& fill(Pattern kind, unsigned seed = 1) {
    fill(pattern(kind, dtype_, elems(), seed));
    vary_nans(seed);
    return *this;
  }
  // Gives every NaN a sign and a payload of its own.
  void vary_nans(unsigned seed) {
    std::mt19937_64 random(seed);
    for (std::int64_t i = 0; i < elems(); ++i) {
      if (std::isnan(get(i))) set_bits(i, some_nan(random()));
    }
  }
  // The element's bits: as many of the lowest as it has.
  void set_bits(std::int64_t index, std::uint64_t bits) {
    std::memcpy(address(index), &bits, size_bytes(dtype_));
  }
  std::uint64_t bits(std::int64_t index) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, address(index), size_bytes(dtype_));
    return bits;
  }
  // The elements' bytes side by side, row-major.
  std::vector<std::byte> bytes() const {
    const std::size_t width = size_bytes(dtype_);
    std::vector<std::byte> all(static_cast<std::size_t>(elems()) * width);
    for (std::int64_t i = 0; i < elems(); ++i) {
      std::memcpy(&all[static_cast<std::size_t>(i) * width], address(i), width);
    }
    return all;
  }
  // Whether nothing was written between the elements.
  bool gaps_untouched() const {
    std::vector<bool> ours(storage_.size());
    for (std::int64_t i = 0; i < elems(); ++i) {
      const auto at = static_cast<std::size_t>(address(i) - storage_.data());
      std::fill_n(ours.begin() + static_cast<std::ptrdiff_t>(at), size_bytes(dtype_), true);
    }
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (!ours[i] && storage_.data()[i] != kUntouched) return false;
    }
    return true;
  }

 private:
  std::byte* address(std::int64_t index) const {
    return static_cast<std::byte*>(data()) +
           offset(index) * static_cast<std::int64_t>(size_bytes(dtype_));
  }
  // The exponent of infinities, and of the random bits a sign and a fraction that is not 0.
  std::uint64_t some_nan(std::uint64_t random) const {
    const std::uint64_t fraction = dtype_ == DType::F16    ? 0x03ffu
                                   : dtype_ == DType::BF16 ? 0x007fu
                                   : dtype_ == DType::F32  ? 0x007fffffu
                                                           : 0x000fffffffffffffu;
    const std::uint64_t sign = std::uint64_t{1} << (8 * size_bytes(dtype_) - 1);
    const std::uint64_t payload = (random & fraction) == 0 ? 1 : random & fraction;
    return (random & sign) | (sign - 1 - fraction) | payload;
  }
  void* data() const {
    return storage_.data() + first_ * static_cast<std::int64_t>(size_bytes(dtype_));
  }

  std::int64_t offset(std::int64_t index) const {
    std::int64_t at = 0;
    for (std::size_t axis = shape_.rank(); axis-- > 0; index /= shape_[axis]) {
      at += index % shape_[axis] * strides_[axis];
    }
    return at;
  }

  // Sets strides and the first element's place; returns the bytes to allocate.
  std::size_t arrange(Order order) {
    std::vector<std::size_t> axes(shape_.rank());  // outermost first
    std::iota(axes.begin(), axes.end(), std::size_t{0});
    if (order == Order::Fortran) std::reverse(axes.begin(), axes.end());
    if (order == Order::ChannelsLast && axes.size() > 2) {
      std::rotate(axes.end() - 3, axes.end() - 2, axes.end());
    }
    if (order == Order::Transposed && axes.size() > 1)
      std::iter_swap(axes.end() - 2, axes.end() - 1);
    const bool gaps = order == Order::Gapped;
    std::int64_t step = gaps ? 2 : 1, last = 0;
    for (std::size_t i = axes.size(); i-- > 0;) {
      const std::size_t axis = axes[i];
      const bool back =
          order == Order::Backwards || (order == Order::Flipped && i + 1 < axes.size());
      const std::int64_t reach = step * std::max<std::int64_t>(shape_[axis] - 1, 0);
      strides_[axis] = back ? -step : step;
      first_ += back ? reach : 0;
      last += reach;
      step *= std::max<std::int64_t>(shape_[axis], 1);
      const bool row = i + 1 == axes.size();
      if (gaps || (order == Order::PaddedRows && row)) step += 3;
      if (order == Order::PaddedLines && row) step = (step + 32) / 32 * 32;
    }
    return static_cast<std::size_t>(elems() > 0 ? last + 1 : 0) * size_bytes(dtype_);
  }

  DType dtype_;
  Shape shape_, strides_;
  std::int64_t first_ = 0;
  Buffer storage_;
};

// ---- comparison ---------------------------------------------------------------------------------

// Describes the first difference between the bits of two runs of elements, or returns nothing.
inline std::string first_difference(DType dtype, std::span<const std::byte> a,
                                    std::span<const std::byte> b) {
  if (a.size() != b.size()) {
    return std::to_string(a.size()) + " bytes against " + std::to_string(b.size());
  }
  if (std::equal(a.begin(), a.end(), b.begin())) return "";
  const std::size_t width = size_bytes(dtype);
  std::size_t at = 0;
  while (std::memcmp(&a[at], &b[at], width) == 0) at += width;
  const auto element = [&](std::span<const std::byte> of) {
    std::byte aligned[sizeof(double)];
    std::uint64_t bits = 0;
    std::memcpy(aligned, &of[at], width);
    std::memcpy(&bits, &of[at], width);
    return fmt::format("{} ({:#x})", get(dtype, aligned, 0), bits);
  };
  return fmt::format("element {}: {} against {}", at / width, element(a), element(b));
}

}  // namespace tuckfold::ref
