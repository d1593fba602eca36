// The files in a tar archive: ustar, with the long names of GNU and of pax.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tuckfold {

struct TarMember {
  std::string name;
  std::span<const std::byte> bytes;  // inside of the archive
};

// Throws CorruptData where the archive is cut or a header is wrong, Unsupported for members that
// are neither files nor folders. `path` is for messages.
std::vector<TarMember> list_tar(std::span<const std::byte> archive, std::string_view path);

// Whether a first header is there, its checksum right.
bool is_tar(std::span<const std::byte> archive);

}  // namespace tuckfold
