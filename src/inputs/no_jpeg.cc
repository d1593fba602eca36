// Linked where the library that reads JPEG is not there.
#include "inputs/image.h"

namespace tuckfold {

const ImageFormat kJpegImage = {
    .name = "JPEG",
    .look = [](std::span<const std::byte>, std::string_view path, std::uint64_t) -> ImageInfo {
      fail_without_library(path, "JPEG", "libjpeg-dev");
    },
    .decode = [](std::span<const std::byte>, std::string_view path, std::uint64_t, const ImageInfo&,
                 std::byte*) { fail_without_library(path, "JPEG", "libjpeg-dev"); }};

}  // namespace tuckfold
