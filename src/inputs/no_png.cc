// Linked where the library that reads PNG is not there.
#include "inputs/image.h"

namespace tuckfold {

const ImageFormat kPngImage = {
    .name = "PNG",
    .look = [](std::span<const std::byte>, std::string_view path, std::uint64_t) -> ImageInfo {
      fail_without_library(path, "PNG", "libpng-dev");
    },
    .decode = [](std::span<const std::byte>, std::string_view path, std::uint64_t, const ImageInfo&,
                 std::byte*) { fail_without_library(path, "PNG", "libpng-dev"); }};

}  // namespace tuckfold
