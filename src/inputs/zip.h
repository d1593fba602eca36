// The directory of a zip archive: members stored or deflated, with the 64-bit fields that numpy
// writes for large arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/bytes.h"

namespace tuckfold {

struct ZipMember {
  std::string name;
  bool deflated = false;
  std::uint32_t crc = 0;
  std::span<const std::byte> packed;  // inside of the archive
  std::size_t size = 0;               // once inflated
};

// Every member is inside of `archive`, and together they are no larger. `path` is for messages.
std::vector<ZipMember> list_zip(std::span<const std::byte> archive, std::string_view path);

// The member's bytes: in place, or inflated and checked against their checksum. Bytes that are
// stored in place are not read here, so checking them would cost a pass over the file.
std::shared_ptr<const Bytes> read_member(const ZipMember& member, std::string_view path);

}  // namespace tuckfold
