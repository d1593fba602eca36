// NumPy's .npy files: mapped for reading, written whole.
//
//   const NpyFile file("images.npy");            // throws Io, CorruptData or Unsupported
//   std::vector<float> values(file.shape().elems());
//   file.read(DType::F32, values.data());        // row-major, from any type
//   pack(spec, file.view(), packed);             // no copy
//
// A header is not trusted before the file is known to hold what it announces.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/bytes.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

struct NpyHeader {
  DType dtype = DType::F32;
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;
};

// Reads the header at the front of a file's bytes, versions 1.0 to 3.0. Fewer bytes than its values
// have, and more, are errors. `path` is for messages.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, std::string_view path);

// "<f4", "|u1" …, as a header has it. Throws Unsupported for bf16, which numpy lacks.
std::string npy_descr(DType dtype);

// A file mapped for as long as the object lives. It must not shrink meanwhile.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  DType dtype() const noexcept { return header_.dtype; }
  const Shape& shape() const noexcept { return header_.shape; }
  std::size_t data_bytes() const;

  // The values where they are, Fortran order as strides.
  ConstTensorView view() const;

  // Writes all values row-major to `out`: converted to f32, or in the file's own dtype.
  void read(DType dtype, void* out) const;

 private:
  Shape strides() const;

  std::shared_ptr<const Bytes> file_;
  NpyHeader header_;
  const std::byte* data_ = nullptr;
  std::vector<std::byte> copy_;  // of values that are misaligned, or bools other than 0 and 1
};

// The front of a row-major file, version 1.0, whose values follow. bf16, which numpy lacks, is
// Unsupported.
std::string npy_header_text(DType dtype, const Shape& shape);
// Writes version 1.0, row-major, whatever the strides. bf16, which numpy lacks, is Unsupported.
void write_npy(const std::string& path, const ConstTensorView& view);

}  // namespace tuckfold
