// Any bytes are refused as CorruptData or Unsupported, or have a header whose array they hold.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "inputs/npy.h"
#include "tuckfold/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tuckfold;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const NpyHeader header = parse_npy_header(bytes, "fuzz.npy");
    const auto elems = static_cast<std::size_t>(header.shape.elems());
    if (header.data_offset > size) std::abort();
    if (elems > (size - header.data_offset) / size_bytes(header.dtype)) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::CorruptData && error.code() != Errc::Unsupported) std::abort();
  }
  return 0;
}
