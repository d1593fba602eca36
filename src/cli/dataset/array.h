// A tensor on the heap of a command: read from a .npy file, or generated.
//
//   const Array images = load_array("images.npy", ReadAs::Default);
//   pack(spec, images.view(), packed);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/fill_value.h"
#include "tuckfold/tensor.h"

namespace tuckfold::cli {

// Zeroed memory on huge pages where the system has them: without, a benchmark of one pass over an
// array measures page-table walks.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(std::size_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte> span() const noexcept { return {data_, size_}; }

 private:
  void* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct Array {
  std::string name;    // the path, or "synthetic:SHAPE"
  std::string stored;  // the dtype it came in, as text
  std::size_t stored_bytes = 0;
  DType dtype = DType::F32;  // the type it is packed in
  Shape shape;
  HugeBuffer values;  // row-major
  // Not 0 where a fill value was, which quality does not count; empty where there are none.
  std::vector<std::uint8_t> marks{};
  double scale_factor = 1;  // by which netCDF readers multiply values

  std::size_t bytes() const noexcept { return values.size(); }
  ConstTensorView view() const { return {values.data(), dtype, shape}; }
};

// Default reads whole numbers of up to 16 bits as f32, values unchanged, and keeps other types.
enum class ReadAs { Default, F32, Stored };

ReadAs parse_read_as(std::string_view word);  // "f32", "stored" or nothing
DType dtype_read(DType stored, ReadAs read_as);

// All of a .npy file; load_arrays() reads other inputs.
Array load_array(const std::string& path, ReadAs read_as);
// Throws InvalidArgument if there are no values to measure.
void need_values(const Array& array);

// `text` is "100x3x256x256" or "100x3x256x256:f16": picture-like planes, the same on every run.
Array make_array(std::string_view text, ReadAs read_as);

// Marks fill values, and puts others in their places.
void replace_fill(Array& array, std::span<const FillValue> fill);

// Notes to print below the figures of this array, or nothing.
std::string notes_on(const Array& array);

// "images.npy: 64x3x32x32 f32 (stored u8), 786.4 kB"
std::string describe(const Array& array);

}  // namespace tuckfold::cli
