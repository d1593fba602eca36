#include "cli/dataset/array.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <new>
#include <numbers>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/fill.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "cli/terminal/stdio.h"
#include "inputs/npy.h"

namespace tuckfold::cli {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

Shape parse_shape(std::string_view text, std::string_view whole) {
  Shape shape;
  for (const char* at = text.data();; ++at) {
    std::int64_t length = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(at, end, length);
    if (error != std::errc{} || length < 1 || (stop != end && *stop != 'x')) {
      invalid("[array] a synthetic array is written as 100x3x256x256 or 8x64x64:f16, got '{}'",
              whole);
    }
    shape.push_back(length);
    if (stop == end) return shape;
    at = stop;
  }
}

std::string size_text(std::size_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes) / 1000;
  const char* unit = "kMGTPE";
  for (; size >= 999.95; size /= 1000) ++unit;
  return fmt::format("{:.1f} {}B", size, *unit);
}

std::uint64_t hash(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
float uniform(std::uint64_t x) { return static_cast<float>(hash(x) >> 40) * 0x1p-24f; }

// A plane between 0 and `peak`: two waves, a bright rectangle with hard edges, and a little noise.
// Codecs compress it about as well as photographs; their speed hardly depends on it.
void fill_plane(std::uint64_t plane, std::int64_t rows, std::int64_t cols, float peak, float* out) {
  const auto random = [&](std::uint64_t which) { return uniform(plane * 16 + which); };
  const auto wave = [](std::int64_t length, float turns, float phase) {
    std::vector<float> values(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float place = static_cast<float>(i) / static_cast<float>(length);
      values[i] = std::sin(2 * std::numbers::pi_v<float> * (turns * place + phase));
    }
    return values;
  };
  const auto slow_y = wave(rows, 1 + random(0), random(1)),
             slow_x = wave(cols, 1 + random(2), random(3));
  const auto fast_y = wave(rows, 6 * random(4), random(5)),
             fast_x = wave(cols, 6 * random(6), random(7));
  const auto edge = [&](std::uint64_t which, std::int64_t length) {
    return static_cast<std::int64_t>(random(which) * static_cast<float>(length));
  };
  const std::int64_t top = edge(8, rows), left = edge(9, cols);
  for (std::int64_t y = 0; y < rows; ++y) {
    for (std::int64_t x = 0; x < cols; ++x) {
      const auto at_y = static_cast<std::size_t>(y), at_x = static_cast<std::size_t>(x);
      const bool inside = y >= top && y < top + rows / 3 && x >= left && x < left + cols / 3;
      const float noise = uniform((plane << 32) ^ static_cast<std::uint64_t>(y * cols + x)) - 0.5f;
      *out++ =
          peak * (0.4f + 0.18f * slow_y[at_y] * slow_x[at_x] + 0.08f * fast_y[at_y] * fast_x[at_x] +
                  (inside ? 0.25f : 0.0f) + 0.02f * noise);
    }
  }
}

template <class T>
void put_whole(const std::vector<float>& plane, std::int64_t index, const HugeBuffer& values) {
  T* to = reinterpret_cast<T*>(values.data()) + index * static_cast<std::int64_t>(plane.size());
  std::transform(plane.begin(), plane.end(), to, [](float value) { return static_cast<T>(value); });
}

}  // namespace

HugeBuffer::HugeBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  map_bytes_ = (bytes / kHugePage + 2) * kHugePage;
  map_ = ::mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map_ == MAP_FAILED) {
    map_ = nullptr;
    throw std::bad_alloc();
  }
  const auto skip = -reinterpret_cast<std::uintptr_t>(map_) % kHugePage;
  data_ = static_cast<std::byte*>(map_) + skip;
  ::madvise(data_, map_bytes_ - skip, MADV_HUGEPAGE);  // a wish: small pages only cost time
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
}

void need_values(const Array& array) {
  if (array.shape.elems() == 0) {
    invalid("[array] '{}' has no values (shape {}); nothing can be measured", array.name,
            to_string(array.shape));
  }
}

// Integers of up to 16 bits, and bools, are exact in f32.
DType dtype_read(DType stored, ReadAs read_as) {
  const bool narrow = is_whole(stored) && size_bytes(stored) <= 2;
  const bool keep = read_as == ReadAs::Stored || (read_as == ReadAs::Default && !narrow);
  return keep ? stored : DType::F32;
}

ReadAs parse_read_as(std::string_view word) {
  return word == "f32" ? ReadAs::F32 : word == "stored" ? ReadAs::Stored : ReadAs::Default;
}

Array load_array(const std::string& path, ReadAs read_as) {
  const NpyFile file(input_path("array", path));
  Array array{.name = path,
              .stored = std::string(to_string(file.dtype())),
              .stored_bytes = file.data_bytes(),
              .dtype = dtype_read(file.dtype(), read_as),
              .shape = file.shape(),
              .values = {}};
  need_values(array);
  array.values =
      HugeBuffer(static_cast<std::size_t>(array.shape.elems()) * size_bytes(array.dtype));
  file.read(array.dtype, array.values.data());
  return array;
}

Array make_array(std::string_view text, ReadAs read_as) {
  const std::size_t colon = text.find(':');
  const DType stored = colon == text.npos ? DType::F32 : parse_dtype(text.substr(colon + 1));
  Array array{.name = fmt::format("synthetic:{}", text),
              .stored = std::string(to_string(stored)),
              .stored_bytes = 0,
              .dtype = dtype_read(stored, read_as),
              .shape = parse_shape(text.substr(0, colon), text),
              .values = {}};
  const std::int64_t elems = array.shape.elems();
  array.stored_bytes = static_cast<std::size_t>(elems) * size_bytes(stored);
  array.values = HugeBuffer(static_cast<std::size_t>(elems) * size_bytes(array.dtype));

  const std::size_t rank = array.shape.rank();
  const std::int64_t cols = array.shape[rank - 1];
  const std::int64_t rows = rank == 1 ? 1 : array.shape[rank - 2];
  const FlatWriter writer(TensorView(array.values.data(), array.dtype, array.shape));
  // An array that is said to hold integers gets integers, as many of 0..255 as fit, also if it is
  // passed on as f32.
  const bool whole = is_whole(stored);
  const float peak = stored == DType::I8 ? 127.0f : whole && stored != DType::Bool ? 255.0f : 1.0f;
  parallel_for(elems / (rows * cols), thread_count(0), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> plane(static_cast<std::size_t>(rows * cols));
    for (std::int64_t i = begin; i < end; ++i) {
      fill_plane(static_cast<std::uint64_t>(i), rows, cols, peak, plane.data());
      if (whole) {
        for (float& value : plane) value = std::nearbyint(value);
      }
      if (must_be_exact(array.dtype)) {
        with_element(array.dtype, [&](auto element) {
          using T = decltype(element);
          if constexpr (std::is_integral_v<T>) put_whole<T>(plane, i, array.values);
        });
      } else {
        writer.scatter(i * rows * cols, rows * cols, plane.data());
      }
    }
  });
  return array;
}

void replace_fill(Array& array, std::span<const FillValue> fill) {
  if (fill.empty()) return;
  const std::int64_t elems = array.shape.elems();
  array.marks.resize(static_cast<std::size_t>(elems));
  const FillMarks marks(array.dtype, fill);
  if (marks.mark(array.values.data(), elems, array.marks.data()) == 0) return array.marks.clear();
  fill_holes(array.dtype, array.shape, array.marks.data(), array.values.data());
}

std::string notes_on(const Array& array) {
  const std::size_t rank = array.shape.rank();
  const std::int64_t last = rank >= 3 ? array.shape[rank - 1] : 0;
  if (last < 2 || last > 4) return "";
  return fmt::format(
      "note: the last axis has {} values; if they are colours, block codecs do much better on "
      "{}xHxW\n",
      last, last);
}

std::string describe(const Array& array) {
  const std::string_view dtype = to_string(array.dtype);
  const std::string stored = array.stored == dtype ? "" : fmt::format(" (stored {})", array.stored);
  return fmt::format("{}: {} {}{}, {}", array.name, to_string(array.shape), dtype, stored,
                     size_text(array.bytes()));
}

}  // namespace tuckfold::cli
