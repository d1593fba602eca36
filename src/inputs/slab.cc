// Reads samples from memory: with one copy if they are contiguous, else value by value.
#include "inputs/slab.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "base/fail.h"
#include "base/strided.h"
#include "inputs/formats.h"
#include "inputs/image.h"

namespace tuckfold {
namespace {

template <class T>
T swapped(T value) {
  if constexpr (sizeof(T) == 1) return value;
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::ranges::reverse(bytes);
  return std::bit_cast<T>(bytes);
}

// Copies a run of values, `step` bytes apart, to contiguous values.
template <class Word>
std::byte* copy_run(const std::byte* from, std::int64_t count, std::int64_t step, bool swap,
                    std::byte* out) {
  for (; count > 0; --count, from += step, out += sizeof(Word)) {
    Word value;
    std::memcpy(&value, from, sizeof value);
    if (swap) value = swapped(value);
    std::memcpy(out, &value, sizeof value);
  }
  return out;
}

std::byte* copy_run(const Slab& slab, const std::byte* from, std::int64_t count, std::int64_t step,
                    std::byte* out) {
  std::byte* end = with_word(slab.dtype, [&](auto word) {
    return copy_run<decltype(word)>(from, count, step, slab.big_endian, out);
  });
  if (slab.dtype == DType::Bool) normalize_bools(out, count);
  return end;
}

// One sample, row by row along its last axis.
std::byte* read_strided(const Slab& slab, const std::byte* from, const SourceArray& array,
                        std::byte* out) {
  const Shape& shape = array.sample;
  const Shape& strides = *slab.strides;
  const auto size = static_cast<std::int64_t>(size_bytes(slab.dtype));
  const std::size_t rank = shape.rank();
  const std::int64_t length = rank == 0 ? 1 : shape[rank - 1];
  const std::int64_t step = rank == 0 ? 1 : strides[rank - 1];
  for (std::int64_t line = 0; line < shape.elems() / length; ++line) {
    std::int64_t offset = 0, index = line;
    for (std::size_t axis = rank == 0 ? 0 : rank - 1; axis-- > 0; index /= shape[axis]) {
      offset += index % shape[axis] * strides[axis];
    }
    out = copy_run(slab, from + offset * size, length, step * size, out);
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

// Whether values are stored as they are read: row-major within a sample,
bool is_as_stored(const Slab& slab) {
  return slab.image_bytes == 0 && !slab.strides && slab.dtype != DType::Bool &&
         (!slab.big_endian || size_bytes(slab.dtype) == 1);
}
// and samples one after the other.
bool is_contiguous(const Slab& slab, const SourceArray& array) {
  return is_as_stored(slab) && slab.step == static_cast<std::int64_t>(array.sample_bytes());
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

  void drop_pages() const noexcept override {
    for (const std::shared_ptr<const Bytes>& bytes : kept_) bytes->drop_pages();
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
    if (count > end - first || !is_contiguous(slab, arrays()[array])) return nullptr;
    const std::byte* found = slab.data + (first - (end - slab.samples)) * slab.step;
    if (reinterpret_cast<std::uintptr_t>(found) % size_bytes(slab.dtype) != 0) return nullptr;
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
    const ImageInfo info{.dtype = slab.dtype,
                         .channels = array.sample[0],
                         .rows = array.sample[1],
                         .cols = array.sample[2]};
    read_image({slab.data, slab.image_bytes}, fmt::format("one of array {}", array.name), info,
               out);
    return out + array.sample_bytes();
  }
  const std::byte* from = slab.data + first * slab.step;
  const std::int64_t elems = array.sample.elems();
  const auto stored_bytes = static_cast<std::int64_t>(size_bytes(slab.dtype));
  const bool as_is = is_as_stored(slab);
  if (is_contiguous(slab, array)) {
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
      out = copy_run(slab, from, elems, stored_bytes, out);
    }
  }
  return out;
}

void normalize_bools(std::byte* bytes, std::int64_t count) {
  std::transform(bytes, bytes + count, bytes,
                 [](std::byte byte) { return std::byte{byte != std::byte{0}}; });
}

Shape sample_of(const Shape& shape, std::string_view verb, std::string_view path,
                std::string_view name) {
  if (shape.rank() == 0) {
    fail_over_arrays(Errc::InvalidArgument, path,
                     "[{}] '{}': the leading axis counts samples, and array '{}' is a scalar", verb,
                     path, name);
  }
  return Shape(std::span(shape.begin() + 1, shape.end()));
}

void SlabBuilder::add(std::string name, std::vector<Slab> slabs, const Shape& sample) {
  std::int64_t samples = 0;
  for (const Slab& slab : slabs) samples += slab.samples;
  const DType dtype = slabs.empty() ? DType::U8 : slabs.front().dtype;
  arrays_.push_back({.name = std::move(name), .dtype = dtype, .sample = sample});
  slabs_.push_back(std::move(slabs));
  samples_.push_back(samples);
}

void SlabBuilder::add(std::string name, const Slab& slab, const Shape& sample) {
  add(std::move(name), std::vector{slab}, sample);
}

void SlabBuilder::add(std::string name, const std::byte* data, DType dtype, const Shape& shape) {
  const Shape sample = sample_of(shape, verb_, path_, name);
  const std::int64_t elems = shape[0] == 0 ? 0 : shape.elems() / shape[0];
  add(std::move(name),
      Slab{.data = data,
           .samples = shape[0],
           .step = elems * static_cast<std::int64_t>(size_bytes(dtype)),
           .dtype = dtype},
      sample);
}

void SlabBuilder::add_npy(std::string name, std::span<const std::byte> bytes,
                          std::string_view path) {
  const NpyHeader header = parse_npy_header(bytes, path);
  const std::byte* data = bytes.data() + header.data_offset;
  if (!header.fortran_order) return add(std::move(name), data, header.dtype, header.shape);
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
           .step = static_cast<std::int64_t>(size_bytes(header.dtype)),
           .dtype = header.dtype,
           .strides = std::move(strides)},
      sample);
}

std::unique_ptr<Source> SlabBuilder::finish() {
  if (arrays_.empty()) {
    fail_over_arrays(Errc::InvalidArgument, path_,
                     "[{}] '{}' holds none of the arrays that are asked for", verb_, path_);
  }
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const std::string& name = arrays_[i].name;
    if (samples_[i] != samples_[0]) {
      fail_over_arrays(
          Errc::InvalidArgument, path_,
          "[{}] '{}': arrays of a dataset have one number of samples, but '{}' has {} and '{}' has "
          "{}",
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
