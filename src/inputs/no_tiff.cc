// Linked where the library that reads TIFF is not there.
#include "inputs/image.h"

namespace tuckfold {

const ImageFormat kTiffImage = {
    .name = "TIFF",
    .look = [](std::span<const std::byte>, std::string_view path, std::uint64_t) -> ImageInfo {
      fail_without_library(path, "TIFF", "libtiff-dev");
    },
    .decode = [](std::span<const std::byte>, std::string_view path, std::uint64_t, const ImageInfo&,
                 std::byte*) { fail_without_library(path, "TIFF", "libtiff-dev"); }};

}  // namespace tuckfold
