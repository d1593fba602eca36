// bounded's packed bytes from the documentation alone, one value at a time. For tests only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/tensor_fixture.h"

namespace tuckfold::bounded_ref {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The largest f32 (f64 for f64) that is at most the bound.
inline double as_stored(DType dtype, double bound) {
  if (dtype == DType::F64) return bound;
  if (bound >= std::numeric_limits<float>::max()) return std::numeric_limits<float>::max();
  const auto near = static_cast<float>(bound);
  return near <= bound ? near : std::nextafterf(near, 0.0f);
}

// Half a step of the grid.
inline double half_step(DType dtype, double bound, bool exact, int grid) {
  if (dtype == DType::U8 || dtype == DType::U16) {
    const double whole = std::floor(std::min(bound, dtype == DType::U8 ? 255.0 : 65535.0));
    return exact && whole > 0 ? whole : whole + 0.5;
  }
  constexpr double kShrink[] = {0x1p-16, 0x1p-12, 0x1p-8, 0x1p-5, 0x1p-3, 0x1p-1};
  const double half = as_stored(dtype, bound) * (1 - kShrink[grid]);
  return dtype == DType::F64 ? half : static_cast<float>(half);
}

// What codes=bits unpacks to, as doubles of the tensor's dtype.
inline std::vector<double> unpack_bits(DType dtype, std::int64_t elems, bool relative, double bound,
                                       bool exact, std::span<const std::byte> packed) {
  const std::size_t width = size_bytes(dtype);
  std::vector<double> values;
  if (packed.size() == static_cast<std::size_t>(elems) * width) {
    for (std::int64_t i = 0; i < elems; ++i) values.push_back(ref::get(dtype, packed.data(), i));
    return values;
  }
  const std::byte* headers = packed.data();
  if (relative) {
    bound = load<double>(headers);
    headers += 8;
  }
  const std::int64_t chunks = (elems + 1023) / 1024;
  const std::byte* at = headers + 6 * chunks;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk, headers += 6) {
    const auto both = load<std::uint16_t>(headers + 4);
    const int kind = both & 7, words = both >> 3;
    const std::int64_t count = std::min<std::int64_t>(1024, elems - 1024 * chunk);
    auto code = load<std::int32_t>(headers);
    // What the numbers are, which form they have, and the first planes of the next row or half.
    const int what = words > 0 ? static_cast<int>(at[1]) & 3 : 0;
    const int form = words > 0 ? static_cast<int>(at[1]) >> 2 : 0;
    const int first = words > 0 ? static_cast<int>(at[0]) : 0;
    const int size = form == 0 ? 16 : 8;  // of a row, or of half of one
    const auto bits_at = [](const std::byte* from, std::int64_t bit, int many) {
      std::uint32_t bits = 0;
      for (int j = 0; j < many; ++j) {
        const auto byte = static_cast<std::uint32_t>(from[(bit + j) / 8]);
        bits |= (byte >> (bit + j) % 8 & 1u) << j;
      }
      return bits;
    };
    // For each row or half a bit for each plane that is there.
    std::vector<std::uint32_t> stored;
    const std::byte* row = at + 2;
    if (words > 0 && form == 0) {
      for (int i = 0; i < 64; ++i) {
        const auto planes = static_cast<std::uint32_t>(first) + bits_at(at + 2, 4 * i, 4);
        stored.push_back(planes == 32 ? ~0u : (1u << planes) - 1);
      }
      row += 32;
    } else if (words > 0 && form == 1) {
      for (int i = 0; i < 128; ++i) stored.push_back(bits_at(at + 2, i * first, first));
      row += 16 * first;
    } else if (words > 0) {
      row += 32;
      for (int group = 0; group < 32; ++group) {
        const auto head = static_cast<std::uint32_t>(at[2 + group]);
        const auto full = static_cast<int>(head >> 4), bits = static_cast<int>(head & 15) - full;
        for (int half = 0; half < 4; ++half) {
          stored.push_back(bits_at(row, half * bits, bits) << full | ((1u << full) - 1));
        }
        row += (bits + 1) / 2;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if (kind >= 6) {
        alignas(8) std::byte bits[8];
        std::memcpy(bits, at + (kind == 6 ? 0 : i * static_cast<std::int64_t>(width)), width);
        values.push_back(ref::get(dtype, bits, 0));
        continue;
      }
      if (words > 0) {
        std::uint32_t coded = 0;
        const std::byte* plane = row;
        for (int j = 0; j < 32; ++j) {
          if ((stored[static_cast<std::size_t>(i / size)] >> j & 1u) == 0) continue;
          const int bit = static_cast<int>(i % size);
          coded |= (static_cast<std::uint32_t>(plane[bit / 8]) >> bit % 8 & 1u) << j;
          plane += size / 8;
        }
        if (what == 2) coded -= 2 * (coded % 2);
        if (what == 1) {
          code = load<std::int32_t>(headers) + static_cast<std::int32_t>(coded);
        } else {
          code += coded % 2 == 0 ? static_cast<std::int32_t>(coded / 2)
                                 : -static_cast<std::int32_t>(coded / 2) - 1;
        }
        if (i % size == size - 1) row = plane;
      }
      const double half = half_step(dtype, bound, exact, kind);
      const bool inward = exact && !((dtype == DType::U8 || dtype == DType::U16) && bound < 1);
      const double steps = 2.0 * code - (inward ? (code > 0) - (code < 0) : 0);
      // One rounding to f32, then that of the dtype.
      alignas(8) std::byte bits[8];
      const double value = steps * half;
      ref::set(dtype, bits, 0, dtype == DType::F64 ? value : static_cast<float>(value));
      values.push_back(ref::get(dtype, bits, 0));
    }
    at += 2 * words;
  }
  if (at != packed.data() + packed.size()) throw std::runtime_error("bytes are left");
  return values;
}

// ---- codes=bytes

// Takes from the front of bytes.
struct Source {
  std::span<const std::byte> left;

  std::span<const std::byte> bytes(std::size_t count) {
    if (count > left.size()) throw std::runtime_error("bytes are missing");
    const auto taken = left.first(count);
    left = left.subspan(count);
    return taken;
  }
  template <class T>
  T take() {
    return load<T>(bytes(sizeof(T)).data());
  }
  // A plane with the groups that were left out.
  std::vector<int> plane(std::size_t count) {
    const std::size_t groups = (count + 3) / 4;
    const auto mask = bytes((groups + 7) / 8);
    std::vector<int> all;
    for (std::size_t g = 0; g < groups; ++g) {
      const bool there = (static_cast<int>(mask[g / 8]) >> (g % 8) & 1) != 0;
      for (int i = 0; i < 4; ++i) all.push_back(there ? static_cast<int>(take<std::uint8_t>()) : 0);
    }
    return all;
  }
};

inline std::int32_t unzigzag(std::uint32_t coded) {
  return coded % 2 == 0 ? static_cast<std::int32_t>(coded / 2)
                        : -static_cast<std::int32_t>(coded / 2) - 1;
}

inline std::vector<std::int32_t> codes_of(Source& from, int width, std::size_t escapes,
                                          std::size_t count) {
  const std::vector<int> low = from.plane(width == 0 ? (count + 1) / 2 : count);
  const std::vector<int> high = width == 2 ? from.plane(count) : std::vector<int>(count);
  std::vector<std::uint32_t> coded;
  const std::uint32_t most = width == 0 ? 15 : width == 1 ? 255 : 65535;
  for (std::size_t i = 0; i < count; ++i) {
    coded.push_back(width == 0 ? static_cast<std::uint32_t>(low[i / 2] >> (i % 2 * 4) & 15)
                               : static_cast<std::uint32_t>(low[i] + 256 * high[i]));
  }
  std::vector<bool> open(count);
  for (std::size_t i = 0; i < count; ++i) {
    open[i] = coded[i] == most;
    if (open[i] && width == 0) {
      const auto more = from.take<std::uint8_t>();
      coded[i] += more;
      open[i] = more == 255;
    }
  }
  std::vector<std::int32_t> codes;
  for (std::size_t i = 0; i < count; ++i) {
    codes.push_back(open[i] ? from.take<std::int32_t>() : unzigzag(coded[i]));
    escapes -= open[i] ? 1 : 0;
  }
  if (escapes != 0) throw std::runtime_error("escapes are left");
  return codes;
}

// The values of tiles side by side from their codes, one tile after the other; `first` is the first
// code of the tile before.
template <class Real>
std::vector<Real> band_values(int predictor, Real half, bool inward, std::int64_t tiles,
                              std::int64_t rows, std::int64_t cols, const std::int32_t*& code,
                              std::int32_t& first) {
  std::vector<Real> values(static_cast<std::size_t>(tiles * rows * cols));
  std::vector<std::int32_t> whole(values.size());
  const auto at = [&](auto& all, std::int64_t t, std::int64_t r, std::int64_t c) -> auto& {
    return all[static_cast<std::size_t>((t * rows + r) * cols + c)];
  };
  // Differences, of every step-th row and column.
  const auto sum_up = [&](std::int64_t t, std::int64_t r, std::int64_t c, std::int64_t step) {
    std::int32_t sum = *code++;
    if (c == 0) {
      sum += r == 0 ? first : at(whole, t, r - step, 0);
      if (r == 0) first = sum;
    } else {
      sum += at(whole, t, r, c - step);
      if (predictor == 1 && r > 0) sum += at(whole, t, r - 1, c) - at(whole, t, r - 1, c - 1);
    }
    at(whole, t, r, c) = sum;
    const std::int32_t steps = 2 * sum - (inward ? (sum > 0) - (sum < 0) : 0);
    at(values, t, r, c) = static_cast<Real>(steps) * half;
  };
  const auto fill = [&](std::int64_t t, std::int64_t r, std::int64_t c, std::int64_t down,
                        std::int64_t right) {
    const auto there = [&](std::int64_t steps) {
      const std::int64_t y = r + steps * down, x = c + steps * right;
      return y >= 0 && y < rows && x >= 0 && x < cols;
    };
    const auto value = [&](std::int64_t steps) {
      return at(values, t, r + steps * down, c + steps * right);
    };
    Real predicted = value(-1);
    if (there(1) && there(-3) && there(3)) {
      predicted = ((value(-1) + value(1)) * Real{9} - (value(-3) + value(3))) * Real{0.0625};
    } else if (there(1)) {
      predicted = (value(-1) + value(1)) * Real{0.5};
    } else if (there(-3)) {
      predicted = value(-1) * Real{1.5} - value(-3) * Real{0.5};
    }
    at(values, t, r, c) = predicted + static_cast<Real>(2 * *code++) * half;
  };
  // Through a row of all tiles.
  const auto along = [&](std::int64_t r, std::int64_t begin, std::int64_t step, auto&& visit) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      for (std::int64_t c = begin; c < cols; c += step) visit(t, r, c);
    }
  };
  const std::int64_t coarse = predictor == 2 ? 32 : 1;
  for (std::int64_t r = 0; r < rows; r += coarse) {
    along(r, 0, coarse, [&](auto t, auto y, auto c) { sum_up(t, y, c, coarse); });
  }
  for (std::int64_t h = coarse / 2; h >= 1; h /= 2) {
    for (std::int64_t r = 0; r < rows; r += 2 * h) {
      along(r, h, 2 * h, [&](auto t, auto y, auto c) { fill(t, y, c, 0, h); });
    }
    for (std::int64_t r = h; r < rows; r += 2 * h) {
      along(r, 0, h, [&](auto t, auto y, auto c) { fill(t, y, c, h, 0); });
    }
  }
  return values;
}

// What codes=bytes unpacks to, for planes of rows x cols; the same as unpack_bits.
template <class Real>
std::vector<double> unpack_bytes(DType dtype, std::int64_t planes, std::int64_t rows,
                                 std::int64_t cols, bool relative, double bound, bool exact,
                                 std::span<const std::byte> packed) {
  const std::size_t width = size_bytes(dtype);
  const std::int64_t elems = planes * rows * cols;
  std::vector<double> result(static_cast<std::size_t>(elems));
  const auto value_in = [&](std::span<const std::byte> bits) {
    alignas(8) std::byte element[8];
    std::memcpy(element, bits.data(), width);
    return ref::get(dtype, element, 0);
  };
  Source from{packed};
  if (packed.size() == result.size() * width) {
    for (double& value : result) value = value_in(from.bytes(width));
    return result;
  }
  if (relative) bound = from.take<double>();
  const std::int64_t down = (rows + 32) / 33, across = (cols + 512) / 513;
  const std::int64_t largest = ((rows + down - 1) / down) * ((cols + across - 1) / across);
  const std::int64_t together = 33 * 513 / largest, tiles = planes * down * across;
  std::vector<std::uint32_t> sizes;
  for (std::int64_t part = 0; part * together < tiles; ++part) {
    sizes.push_back(from.take<std::uint32_t>());
  }
  for (std::int64_t part = 0; part * together < tiles; ++part) {
    // The places of the part's values, in order, and where its tiles end.
    std::vector<std::size_t> places;
    struct Tile {
      std::int64_t rows, cols;
    };
    std::vector<Tile> shapes;
    for (std::int64_t t = part * together; t < std::min((part + 1) * together, tiles); ++t) {
      const std::int64_t y = t / across % down, x = t % across;
      const std::int64_t top = y * rows / down, bottom = (y + 1) * rows / down;
      const std::int64_t left = x * cols / across, right = (x + 1) * cols / across;
      shapes.push_back({bottom - top, right - left});
      for (std::int64_t r = top; r < bottom; ++r) {
        for (std::int64_t c = left; c < right; ++c) {
          places.push_back(static_cast<std::size_t>((t / (down * across) * rows + r) * cols + c));
        }
      }
    }
    Source payload{from.bytes(sizes[static_cast<std::size_t>(part)])};
    const std::size_t size = payload.left.size();
    if (size == places.size() * width) {
      for (const std::size_t place : places) result[place] = value_in(payload.bytes(width));
      continue;
    }
    if (size == width) {
      const double value = value_in(payload.bytes(width));
      for (const std::size_t place : places) result[place] = value;
      continue;
    }
    const int predictor = payload.take<std::uint8_t>(), grid = payload.take<std::uint8_t>();
    const int code_width = payload.take<std::uint8_t>();
    payload.take<std::uint8_t>();
    const auto escapes = payload.take<std::uint32_t>(), runs = payload.take<std::uint32_t>();
    const std::vector<std::int32_t> codes = codes_of(payload, code_width, escapes, places.size());
    const auto half = static_cast<Real>(half_step(dtype, bound, exact, grid));
    const bool inward = exact && !((dtype == DType::U8 || dtype == DType::U16) && bound < 1);
    const std::int32_t* code = codes.data();
    std::int32_t first = 0;
    std::size_t at = 0;
    for (std::size_t begin = 0, end = 0; begin < shapes.size(); begin = end) {
      const Tile& tile = shapes[begin];
      while (end < shapes.size() && shapes[end].rows == tile.rows &&
             shapes[end].cols == tile.cols) {
        ++end;
      }
      for (const Real value :
           band_values<Real>(predictor, half, inward, static_cast<std::int64_t>(end - begin),
                             tile.rows, tile.cols, code, first)) {
        alignas(8) std::byte element[8];
        ref::set(dtype, element, 0, value);
        result[places[at++]] = ref::get(dtype, element, 0);
      }
    }
    std::vector<std::size_t> kept;
    std::size_t place = 0;
    for (std::uint32_t run = 0; run < runs; ++run) {
      place += payload.take<std::uint32_t>();
      for (auto count = payload.take<std::uint32_t>(); count > 0; --count) kept.push_back(place++);
    }
    for (const std::size_t which : kept) result[places[which]] = value_in(payload.bytes(width));
    if (!payload.left.empty()) throw std::runtime_error("bytes are left in a part");
  }
  if (!from.left.empty()) throw std::runtime_error("bytes are left");
  return result;
}

}  // namespace tuckfold::bounded_ref
