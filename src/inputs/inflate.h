// Inflates deflated data. The size is known before anything is allocated.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/io/bytes.h"

namespace tuckfold {

enum class Deflated : unsigned char { Raw, Gzip };

// The most bytes that so many deflated bytes can expand to; a larger announced size is false.
std::size_t most_inflated(std::size_t deflated);

// Inflates all of `in`, which must give exactly `size` bytes. Throws CorruptData if not; before
// allocating if the size alone shows it. `verb` and `path` are for messages.
std::shared_ptr<const Bytes> inflate_all(std::span<const std::byte> in, Deflated kind,
                                         std::size_t size, std::string_view verb,
                                         std::string_view path);

// The same for a gzip file of unknown size: it is inflated twice, first to count the bytes.
std::shared_ptr<const Bytes> inflate_gzip(std::span<const std::byte> in, std::string_view verb,
                                          std::string_view path);

// The first bytes of the inflated data: as many as fit in `out`, or fewer. Does not throw for bad
// bytes.
std::size_t inflate_front(std::span<const std::byte> in, Deflated kind, std::span<std::byte> out);

// The CRC-32 of zip files; `before` is that of the preceding bytes.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace tuckfold
