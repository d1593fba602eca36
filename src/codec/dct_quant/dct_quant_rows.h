// Unpacks images of bytes from where they lie, each at a place of its own: samples of a file in
// random order, which need not be copied side by side first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/dct_quant/dct_quant.h"

namespace tuckfold::dct_quant {

// Bytes after a packed image that may be read; they do not matter.
inline constexpr std::size_t kBeyondRow = 128;

struct RowsJob {
  Params params;
  Blocks blocks;                           // of all images
  std::span<const std::byte* const> rows;  // packed, each with kBeyondRow bytes after it
  std::uint8_t* out;                       // the first image, row-major
  std::int64_t step;                       // bytes from one to the next
};

// False, and nothing is done, where this CPU or the images' sides do not suit the kernel: then
// unpack() takes images that were copied side by side. `shape` is that of all images together.
bool unpack_byte_rows(const Stage& stage, std::span<const std::byte* const> rows,
                      const Shape& shape, std::uint8_t* out, std::int64_t step);

}  // namespace tuckfold::dct_quant
