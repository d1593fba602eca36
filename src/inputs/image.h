// Images of other programs' formats as samples of C x H x W, values unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inputs/slab.h"

namespace tuckfold {

struct ImageInfo {
  DType dtype = DType::U8;  // of one value
  std::int64_t channels = 0, rows = 0, cols = 0;

  Shape shape() const { return {channels, rows, cols}; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(channels * rows * cols) * size_bytes(dtype);
  }
  friend bool operator==(const ImageInfo&, const ImageInfo&) = default;
};

// One row for each library. Without the library, source_no_NAME.cc has a row that says so.
struct ImageFormat {
  std::string_view name;
  // Reads no more than the header of a page. Sizes are checked against what so many bytes can hold.
  ImageInfo (*look)(std::span<const std::byte> bytes, std::string_view path, std::uint64_t page);
  // Writes H x W x C, native byte order: info.bytes(). `info` is what look() said.
  void (*decode)(std::span<const std::byte> bytes, std::string_view path, std::uint64_t page,
                 const ImageInfo& info, std::byte* out);
  // Where each page begins; null where a file is one image.
  std::vector<std::uint64_t> (*pages)(std::span<const std::byte> bytes,
                                      std::string_view path) = nullptr;
};
// The page of a file that has no others. A format with pages refuses a file with several.
inline constexpr std::uint64_t kOnlyPage = 0;
extern const ImageFormat kPngImage, kJpegImage, kTiffImage;

// By the first bytes; null where they are none of an image's.
const ImageFormat* image_format(std::span<const std::byte> bytes);

// Whether a file's name says that it holds an image. Images of formats that are not read count, or are
// Unsupported.
enum class OtherImages : unsigned char { Refuse, Count };
bool is_image_name(std::string_view path, OtherImages others = OtherImages::Refuse);

// The pages of a file; kOnlyPage alone where it is one image.
std::vector<std::uint64_t> pages_of_image(std::span<const std::byte> bytes, std::string_view path);

ImageInfo look_at_image(std::span<const std::byte> bytes, std::string_view path,
                        std::uint64_t page = kOnlyPage);

// Writes C x H x W. Throws CorruptData where the image is another than `info` says.
void read_image(std::span<const std::byte> bytes, std::string_view path, const ImageInfo& info,
                std::byte* out, std::uint64_t page = kOnlyPage);

[[noreturn]] void fail_without_library(std::string_view path, std::string_view name,
                                       std::string_view package);

}  // namespace tuckfold
