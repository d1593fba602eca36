// What the targets of input formats share: any bytes are read to their last sample, or refused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "inputs/formats.h"
#include "tuckfold/error.h"

namespace tuckfold {

// The bytes as a file of the format. Samples are read from both ends, as far as a few fit in 1 MiB:
// hollow ones may be without number.
inline int fuzz_source(const SourceFormat& format, const std::uint8_t* data, std::size_t size,
                       const char* path, const SourceOptions& options = {}) {
  const SourceInput input{.path = path,
                          .file = Bytes::of({reinterpret_cast<const std::byte*>(data), size})};
  format.looks_like(input);
  try {
    const std::unique_ptr<Source> source = format.open({&input, 1}, options);
    for (std::size_t i = 0; i < source->arrays().size(); ++i) {
      const std::size_t bytes = source->arrays()[i].sample_bytes();
      if (bytes > 1 << 20) continue;
      const auto fit = static_cast<std::int64_t>((1 << 20) / std::max<std::size_t>(bytes, 1));
      const std::int64_t count = std::min(source->samples(), fit);
      std::vector<std::byte> out(bytes * static_cast<std::size_t>(count));
      source->read(i, 0, count, out.data());
      source->read(i, source->samples() - count, count, out.data());
    }
  } catch (const Error& error) {
    if (error.code() == Errc::Io || error.code() == Errc::Internal) std::abort();
  }
  return 0;
}

}  // namespace tuckfold
