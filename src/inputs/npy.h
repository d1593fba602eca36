// NumPy's .npy files: mapped for reading, written whole.
//
//   const NpyFile file("images.npy");            // throws Io, CorruptData or Unsupported
//   std::vector<float> values(file.shape().elems());
//   file.read(DType::F32, values.data());        // row-major, from any type
//   if (auto view = file.view()) pack(spec, *view, packed);   // f2 f4 f8 u1 i4 i8: no copy
//
// A header is never believed before the file is known to hold what it announces.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/bytes.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

// What numpy stores; some of these are tensors of ours, bool as u8, and all can be read as f32.
enum class NpyType : unsigned char { F32, F16, F64, U8, Bool, I8, I16, I32, I64, U16, U32, U64 };

std::size_t size_bytes(NpyType type);
std::string_view to_string(NpyType type);  // "f32", "u8", "i16", "bool" …
std::optional<DType> native_dtype(NpyType type);

struct NpyHeader {
  NpyType type = NpyType::F32;
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;
};

// Reads the header at the front of a file's bytes, versions 1.0 to 3.0. `path` is for messages.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, std::string_view path);

// A file mapped for as long as the object lives. It must not shrink meanwhile.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  NpyType type() const noexcept { return header_.type; }
  const Shape& shape() const noexcept { return header_.shape; }
  std::size_t data_bytes() const;

  // The values where they lie, Fortran order as strides; nothing for types that need conversion.
  std::optional<ConstTensorView> view() const;

  // Writes all values row-major to `out`: converted to f32, or in the file's own dtype.
  void read(DType dtype, void* out) const;

 private:
  Shape strides() const;

  std::shared_ptr<const Bytes> file_;
  NpyHeader header_;
  const std::byte* data_ = nullptr;
  std::vector<std::byte> aligned_;  // the values again, where the file has them misaligned
};

// The front of a row-major file, version 1.0, whose values follow. bf16, which numpy lacks, is
// Unsupported.
std::string npy_header_text(DType dtype, const Shape& shape);
// Writes version 1.0, row-major, whatever the strides. bf16, which numpy lacks, is Unsupported.
void write_npy(const std::string& path, const ConstTensorView& view);

}  // namespace tuckfold
