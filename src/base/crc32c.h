// CRC-32C, the checksum of iSCSI and ext4: x86 has an instruction for it, and it finds every error
// of up to 32 bits in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tuckfold {

// The checksum of `bytes` appended to bytes whose checksum is `before`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

// The same by table, for machines without the instruction, and for tests.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace tuckfold
