// Reading and writing the values of .npy files; npy_header.cc reads what precedes them.
#include "inputs/npy.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/dtype.h"
#include "base/fail.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

[[noreturn]] void fail_io(std::string_view doing, const std::string& path) {
  const int reason = errno;
  fail(Errc::Io, "[npy] cannot {} '{}': {}", doing, path, std::strerror(reason));
}

// Calls body(values, step, count) for each row along the last axis, in row-major order.
template <class T, class Body>
void for_each_row(const void* data, const Shape& shape, const Shape& strides, Body&& body) {
  const std::int64_t elems = shape.elems();
  if (elems == 0) return;
  const std::size_t rank = shape.rank();
  const std::int64_t length = rank == 0 ? 1 : shape[rank - 1];
  const std::int64_t step = rank == 0 ? 1 : strides[rank - 1];
  for (std::int64_t row = 0; row < elems / length; ++row) {
    std::int64_t offset = 0, index = row;
    for (std::size_t axis = rank == 0 ? 0 : rank - 1; axis-- > 0; index /= shape[axis]) {
      offset += index % shape[axis] * strides[axis];
    }
    body(static_cast<const T*>(data) + offset, step, length);
  }
}

template <class T>
void read_as_f32(const void* data, const Shape& shape, const Shape& strides, float* out) {
  for_each_row<T>(data, shape, strides, [&](const T* row, std::int64_t step, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
        *out++ = to_float(row[i * step]);
      } else {
        *out++ = static_cast<float>(row[i * step]);
      }
    }
  });
}

template <class Word>
void read_words(const void* data, const Shape& shape, const Shape& strides, void* to) {
  auto* out = static_cast<Word*>(to);
  for_each_row<Word>(data, shape, strides,
                     [&](const Word* row, std::int64_t step, std::int64_t count) {
                       if (step == 1) {
                         out = std::copy_n(row, count, out);
                       } else {
                         for (std::int64_t i = 0; i < count; ++i) *out++ = row[i * step];
                       }
                     });
}

void read_words(std::size_t bytes, const void* data, const Shape& shape, const Shape& strides,
                void* to) {
  switch (bytes) {
    case 1: return read_words<std::uint8_t>(data, shape, strides, to);
    case 2: return read_words<std::uint16_t>(data, shape, strides, to);
    case 4: return read_words<std::uint32_t>(data, shape, strides, to);
    default: return read_words<std::uint64_t>(data, shape, strides, to);
  }
}

}  // namespace

NpyFile::NpyFile(const std::string& path)
    : file_(Bytes::map(path, "npy")), header_(parse_npy_header(file_->span(), path)) {
  data_ = file_->span().data() + header_.data_offset;
  const auto is_odd = [](std::byte byte) { return byte > std::byte{1}; };
  const bool odd = dtype() == DType::Bool && std::any_of(data_, data_ + data_bytes(), is_odd);
  if (odd || header_.data_offset % size_bytes(dtype()) != 0) {
    copy_.assign(data_, data_ + data_bytes());
    if (odd) normalize_bools(copy_.data(), std::ssize(copy_));
    data_ = copy_.data();
  }
}

std::size_t NpyFile::data_bytes() const {
  return static_cast<std::size_t>(shape().elems()) * size_bytes(dtype());
}

Shape NpyFile::strides() const {
  if (!header_.fortran_order) return row_major_strides(shape());
  Shape reversed = shape();
  std::reverse(&reversed[0], &reversed[0] + reversed.rank());
  Shape steps = row_major_strides(reversed);
  std::reverse(&steps[0], &steps[0] + steps.rank());
  return steps;
}

ConstTensorView NpyFile::view() const { return {data_, dtype(), shape(), strides()}; }

void NpyFile::read(DType wanted, void* out) const {
  if (wanted == dtype()) {
    return read_words(size_bytes(wanted), data_, shape(), strides(), out);
  }
  if (wanted != DType::F32) {
    invalid("[npy] values stored as {} can be read as that or as f32, got {}", to_string(dtype()),
            to_string(wanted));
  }
  with_element(dtype(), [&](auto element) {
    read_as_f32<decltype(element)>(data_, shape(), strides(), static_cast<float*>(out));
  });
}

std::string npy_header_text(DType dtype, const Shape& shape) {
  const std::string descr = npy_descr(dtype);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 descr, fmt::join(shape, ", "), shape.rank() == 1 ? "," : "");
  text.resize((text.size() + 10) / 64 * 64 + 64 - 10, ' ');  // data begin on a cache line
  text.back() = '\n';
  const std::size_t length = text.size();
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 255) +
         static_cast<char>(length >> 8) + text;
}

void write_npy(const std::string& path, const ConstTensorView& view) {
  if (view.dtype == DType::BF16) {
    fail(Errc::Unsupported, "[npy] numpy has no bf16; write '{}' as f32", path);
  }
  const std::size_t bytes = static_cast<std::size_t>(view.shape.elems()) * size_bytes(view.dtype);
  std::vector<std::byte> values(bytes);
  read_words(size_bytes(view.dtype), view.data, view.shape, view.strides, values.data());
  const std::string header = npy_header_text(view.dtype, view.shape);

  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) fail_io("create", path);
  const bool written = std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
                       std::fwrite(values.data(), 1, bytes, file) == bytes;
  if (std::fclose(file) != 0 || !written) fail_io("write", path);
}

}  // namespace tuckfold
