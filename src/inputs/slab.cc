// Reads samples from where they lie: copied where types agree, else converted one by one.
#include "inputs/slab.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

#include "base/fail.h"
#include "inputs/image.h"

namespace tuckfold {
namespace {

struct StoredRow {
  std::string_view name;
  std::size_t bytes;
  DType dtype;
};
// In the order of Stored.
constexpr std::array kStored = {
    StoredRow{"f32", 4, DType::F32},   StoredRow{"f16", 2, DType::F16},
    StoredRow{"bf16", 2, DType::BF16}, StoredRow{"f64", 8, DType::F64},
    StoredRow{"u8", 1, DType::U8},     StoredRow{"bool", 1, DType::U8},
    StoredRow{"i8", 1, DType::I32},    StoredRow{"i16", 2, DType::I32},
    StoredRow{"i32", 4, DType::I32},   StoredRow{"i64", 8, DType::I64},
    StoredRow{"u16", 2, DType::I32},   StoredRow{"u32", 4, DType::I64},
    StoredRow{"u64", 8, DType::I64},
};
const StoredRow& row(Stored stored) { return kStored[static_cast<std::size_t>(stored)]; }

template <class T>
T swapped(T value) {
  if constexpr (sizeof(T) == 1) return value;
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::ranges::reverse(bytes);
  return std::bit_cast<T>(bytes);
}

// A run of values, `step` bytes apart, as the dtype that their type becomes.
template <class From, class To>
std::byte* convert(const std::byte* from, std::int64_t count, std::int64_t step, bool swap,
                   std::string_view name, std::byte* out) {
  for (; count > 0; --count, from += step, out += sizeof(To)) {
    From value;
    std::memcpy(&value, from, sizeof value);
    if (swap) value = swapped(value);
    if constexpr (std::is_same_v<From, std::uint64_t> && std::is_same_v<To, std::int64_t>) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        invalid("[source] array '{}' stores {} as u64, which i64 does not hold; store it as f64",
                name, value);
      }
    }
    // An i8 is a number here, no letter. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    const To result = static_cast<To>(value);
    std::memcpy(out, &result, sizeof result);
  }
  return out;
}

std::byte* convert(const Slab& slab, const std::byte* from, std::int64_t count, std::int64_t step,
                   std::string_view name, std::byte* out) {
  const auto run = [&]<class From, class To>() {
    return convert<From, To>(from, count, step, slab.big_endian, name, out);
  };
  switch (slab.stored) {
    case Stored::U8:
    case Stored::Bool: return run.operator()<std::uint8_t, std::uint8_t>();
    case Stored::F16:
    case Stored::BF16: return run.operator()<std::uint16_t, std::uint16_t>();
    case Stored::F32:
    case Stored::I32: return run.operator()<std::uint32_t, std::uint32_t>();
    case Stored::F64:
    case Stored::I64: return run.operator()<std::uint64_t, std::uint64_t>();
    case Stored::I8: return run.operator()<std::int8_t, std::int32_t>();
    case Stored::I16: return run.operator()<std::int16_t, std::int32_t>();
    case Stored::U16: return run.operator()<std::uint16_t, std::int32_t>();
    case Stored::U32: return run.operator()<std::uint32_t, std::int64_t>();
    case Stored::U64: return run.operator()<std::uint64_t, std::int64_t>();
  }
  return out;
}

// One sample, row by row along its last axis.
std::byte* read_strided(const Slab& slab, const std::byte* from, const SourceArray& array,
                        std::byte* out) {
  const Shape& shape = array.sample;
  const Shape& strides = *slab.strides;
  const auto size = static_cast<std::int64_t>(size_bytes(slab.stored));
  const std::size_t rank = shape.rank();
  const std::int64_t length = rank == 0 ? 1 : shape[rank - 1];
  const std::int64_t step = rank == 0 ? 1 : strides[rank - 1];
  for (std::int64_t line = 0; line < shape.elems() / length; ++line) {
    std::int64_t offset = 0, index = line;
    for (std::size_t axis = rank == 0 ? 0 : rank - 1; axis-- > 0; index /= shape[axis]) {
      offset += index % shape[axis] * strides[axis];
    }
    out = convert(slab, from + offset * size, length, step * size, array.name, out);
  }
  return out;
}

bool is_small(const Shape& sample) {
  try {
    return sample.elems() <= std::int64_t{1} << 48;
  } catch (const Error&) {
    return false;
  }
}

// Whether values are stored as the array's dtype, row-major within a sample,
bool is_as_stored(const Slab& slab, const SourceArray& array) {
  const std::size_t bytes = size_bytes(slab.stored);
  return slab.image_bytes == 0 && !slab.strides && size_bytes(array.dtype) == bytes &&
         slab.stored != Stored::U64 && (!slab.big_endian || bytes == 1);
}
// and samples one behind the other.
bool lies_in_rows(const Slab& slab, const SourceArray& array) {
  return is_as_stored(slab, array) && slab.step == static_cast<std::int64_t>(array.sample_bytes());
}

class SlabSource final : public Source {
 public:
  SlabSource(std::vector<SourceArray> arrays, std::int64_t samples,
             std::vector<std::vector<Slab>> slabs, std::vector<std::shared_ptr<const Bytes>> kept)
      : Source(std::move(arrays), samples), kept_(std::move(kept)), slabs_(std::move(slabs)) {
    for (const std::vector<Slab>& of_array : slabs_) {
      std::vector<std::int64_t>& ends = ends_.emplace_back();
      for (const Slab& slab : of_array) {
        ends.push_back((ends.empty() ? 0 : ends.back()) + slab.samples);
      }
    }
  }

 private:
  void read_samples(std::size_t array, std::int64_t first, std::int64_t count,
                    std::byte* out) const override {
    look_at(array, count);
    const std::vector<std::int64_t>& ends = ends_[array];
    for (std::size_t at = slab_of(array, first); count > 0; ++at) {
      const Slab& slab = slabs_[array][at];
      const std::int64_t now = std::min(count, ends[at] - first);
      out = read_slab(slab, first - (ends[at] - slab.samples), now, arrays()[array], out);
      first += now;
      count -= now;
    }
  }

  const std::byte* find_samples(std::size_t array, std::int64_t first,
                                std::int64_t count) const override {
    const std::size_t at = slab_of(array, first);
    const Slab& slab = slabs_[array][at];
    const std::int64_t end = ends_[array][at];
    if (count > end - first || !lies_in_rows(slab, arrays()[array])) return nullptr;
    const std::byte* found = slab.data + (first - (end - slab.samples)) * slab.step;
    if (reinterpret_cast<std::uintptr_t>(found) % size_bytes(slab.stored) != 0) return nullptr;
    look_at(array, count);
    return found;
  }

  std::size_t slab_of(std::size_t array, std::int64_t sample) const {
    const std::vector<std::int64_t>& ends = ends_[array];
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), sample) -
                                    ends.begin());
  }
  void look_at(std::size_t array, std::int64_t count) const {
    for (const std::shared_ptr<const Bytes>& bytes : kept_) {
      bytes->note_read(static_cast<std::uint64_t>(count) * arrays()[array].sample_bytes());
    }
  }

  std::vector<std::shared_ptr<const Bytes>> kept_;
  std::vector<std::vector<Slab>> slabs_;
  std::vector<std::vector<std::int64_t>> ends_;  // of each slab, in samples
};

}  // namespace

std::byte* read_slab(const Slab& slab, std::int64_t first, std::int64_t count,
                     const SourceArray& array, std::byte* out) {
  if (slab.image_bytes > 0) {
    const ImageInfo info{.stored = slab.stored,
                         .channels = array.sample[0],
                         .rows = array.sample[1],
                         .cols = array.sample[2]};
    read_image({slab.data, slab.image_bytes}, fmt::format("one of array {}", array.name), info,
               out);
    return out + array.sample_bytes();
  }
  const std::byte* from = slab.data + first * slab.step;
  const std::int64_t elems = array.sample.elems();
  const auto stored_bytes = static_cast<std::int64_t>(size_bytes(slab.stored));
  const bool as_is = is_as_stored(slab, array);
  if (lies_in_rows(slab, array)) {
    std::memcpy(out, from, static_cast<std::size_t>(count * slab.step));
    return out + count * slab.step;
  }
  for (; count > 0; --count, from += slab.step) {
    if (as_is) {
      std::memcpy(out, from, static_cast<std::size_t>(elems * stored_bytes));
      out += elems * stored_bytes;
    } else if (slab.strides) {
      out = read_strided(slab, from, array, out);
    } else {
      out = convert(slab, from, elems, stored_bytes, array.name, out);
    }
  }
  return out;
}

std::size_t size_bytes(Stored stored) { return row(stored).bytes; }
std::string_view to_string(Stored stored) { return row(stored).name; }
DType dtype_of(Stored stored) { return row(stored).dtype; }

Stored stored_as(NpyType type) {
  const auto found = std::ranges::find(kStored, to_string(type), &StoredRow::name);
  return static_cast<Stored>(found - kStored.begin());
}

Stored stored_as(DType dtype) {
  const auto found = std::ranges::find(kStored, to_string(dtype), &StoredRow::name);
  return static_cast<Stored>(found - kStored.begin());
}

Shape sample_of(const Shape& shape, std::string_view verb, std::string_view path,
                std::string_view name) {
  if (shape.rank() == 0) {
    invalid(
        "[{}] '{}': the leading axis counts samples, and array '{}' is a scalar; name the arrays "
        "to take",
        verb, path, name);
  }
  return Shape(std::span(shape.begin() + 1, shape.end()));
}

void SlabBuilder::add(std::string name, std::vector<Slab> slabs, const Shape& sample) {
  std::int64_t samples = 0;
  for (const Slab& slab : slabs) samples += slab.samples;
  const DType dtype = slabs.empty() ? DType::U8 : dtype_of(slabs.front().stored);
  arrays_.push_back({.name = std::move(name), .dtype = dtype, .sample = sample});
  slabs_.push_back(std::move(slabs));
  samples_.push_back(samples);
}

void SlabBuilder::add(std::string name, const Slab& slab, const Shape& sample) {
  add(std::move(name), std::vector{slab}, sample);
}

void SlabBuilder::add(std::string name, const std::byte* data, Stored stored, const Shape& shape) {
  const Shape sample = sample_of(shape, verb_, path_, name);
  const std::int64_t elems = shape[0] == 0 ? 0 : shape.elems() / shape[0];
  add(std::move(name),
      Slab{.data = data,
           .samples = shape[0],
           .step = elems * static_cast<std::int64_t>(size_bytes(stored)),
           .stored = stored},
      sample);
}

void SlabBuilder::add_npy(std::string name, std::span<const std::byte> bytes,
                          std::string_view path) {
  const NpyHeader header = parse_npy_header(bytes, path);
  const std::byte* data = bytes.data() + header.data_offset;
  const Stored stored = stored_as(header.type);
  if (!header.fortran_order) return add(std::move(name), data, stored, header.shape);
  const Shape sample = sample_of(header.shape, verb_, path, name);
  auto strides = std::make_shared<Shape>(sample);
  std::int64_t stride = header.shape[0];
  for (std::size_t axis = 0; axis < sample.rank(); ++axis) {
    (*strides)[axis] = stride;
    if (header.shape.elems() > 0) stride *= sample[axis];
  }
  add(std::move(name),
      Slab{.data = data,
           .samples = header.shape[0],
           .step = static_cast<std::int64_t>(size_bytes(stored)),
           .stored = stored,
           .strides = std::move(strides)},
      sample);
}

std::unique_ptr<Source> SlabBuilder::finish() {
  if (arrays_.empty()) {
    invalid("[{}] '{}' holds none of the arrays that are asked for", verb_, path_);
  }
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const std::string& name = arrays_[i].name;
    if (samples_[i] != samples_[0]) {
      invalid(
          "[{}] '{}': arrays of a dataset have one number of samples, but '{}' has {} and '{}' has "
          "{}; name the arrays to take",
          verb_, path_, arrays_[0].name, samples_[0], name, samples_[i]);
    }
    if (!names.insert(name).second) {
      fail(Errc::CorruptData, "[{}] '{}' has two arrays called '{}'", verb_, path_, name);
    }
    // An array without samples has no bytes that would bound the size of one.
    if (!is_small(arrays_[i].sample)) {
      fail(Errc::CorruptData, "[{}] '{}': no sample of array '{}' has the shape {}", verb_, path_,
           name, to_string(arrays_[i].sample));
    }
  }
  return std::make_unique<SlabSource>(std::move(arrays_), samples_[0], std::move(slabs_),
                                      std::move(kept_));
}

}  // namespace tuckfold
