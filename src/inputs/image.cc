// Which library reads an image, and its channels from interleaved to planes.
#include "inputs/image.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <vector>

#include "base/fail.h"

namespace tuckfold {
namespace {

std::string lower_extension(std::string_view path) {
  std::string extension = std::filesystem::path(path).extension().string();
  for (char& letter : extension) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return extension;
}

}  // namespace

const ImageFormat* image_format(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return &kPngImage;
  if (text.starts_with("\xff\xd8\xff")) return &kJpegImage;
  for (const std::string_view magic :
       {std::string_view("II*\0", 4), std::string_view("MM\0*", 4), std::string_view("II+\0", 4),
        std::string_view("MM\0+", 4)}) {
    if (text.starts_with(magic)) return &kTiffImage;
  }
  return nullptr;
}

bool is_image_name(std::string_view path, OtherImages others) {
  constexpr std::array kRead = {".png", ".jpg", ".jpeg", ".tif", ".tiff"};
  constexpr std::array kOther = {".webp", ".bmp", ".gif", ".jp2", ".heic", ".avif", ".ppm", ".pgm"};
  const std::string extension = lower_extension(path);
  // Passing over it would silently drop a sample.
  if (std::ranges::count(kOther, extension) > 0) {
    if (others == OtherImages::Count) return true;
    fail(Errc::Unsupported, "[images] '{}' cannot be read; convert it to PNG", path);
  }
  return std::ranges::count(kRead, extension) > 0;
}

std::vector<std::uint64_t> pages_of_image(std::span<const std::byte> bytes, std::string_view path) {
  const ImageFormat* format = image_format(bytes);
  if (format == nullptr || format->pages == nullptr) return {kOnlyPage};
  return format->pages(bytes, path);
}

ImageInfo look_at_image(std::span<const std::byte> bytes, std::string_view path,
                        std::uint64_t page) {
  const ImageFormat* format = image_format(bytes);
  if (format == nullptr) {
    fail(Errc::CorruptData, "[images] '{}' begins as neither PNG, JPEG nor TIFF", path);
  }
  return format->look(bytes, path, page);
}

void read_image(std::span<const std::byte> bytes, std::string_view path, const ImageInfo& info,
                std::byte* out, std::uint64_t page) {
  if (look_at_image(bytes, path, page) != info) {
    fail(Errc::CorruptData, "[images] '{}' is no longer {} {}", path, to_string(info.shape()),
         to_string(info.dtype));
  }
  std::vector<std::byte> mixed(info.bytes());
  image_format(bytes)->decode(bytes, path, page, info, mixed.data());
  // A channel is a sample whose values are `channels` apart.
  const Slab slab{
      .data = mixed.data(),
      .samples = info.channels,
      .step = static_cast<std::int64_t>(size_bytes(info.dtype)),
      .dtype = info.dtype,
      .strides = std::make_shared<Shape>(Shape{info.cols * info.channels, info.channels})};
  read_slab(slab, 0, info.channels, {"image", info.dtype, {info.rows, info.cols}}, out);
}

void fail_without_library(std::string_view path, std::string_view name, std::string_view package) {
  fail(Errc::Unsupported,
       "[images] '{}' is a {} image, which this build cannot read; install {} and build again",
       path, name, package);
}

}  // namespace tuckfold
