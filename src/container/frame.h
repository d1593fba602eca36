// Frames with their checksums, for the readers of files.
#pragma once

#include <vector>

#include "base/io/little_endian.h"
#include "tuckfold/container.h"

namespace tuckfold {

inline constexpr std::size_t kFrameHeadBytes = 32;  // shape and spec follow
inline constexpr std::size_t kFrameAlign = 16;      // of the packed bytes, from the frame's start

// A frame's header in place; the spec is not parsed yet.
struct RawFrame {
  DType dtype;
  Shape shape;
  std::string_view spec;
  std::size_t header_bytes;
  ByteSpan packed;
  std::uint32_t packed_crc;

  bool packed_is_whole() const noexcept;
};

// The checksum of the packed bytes of a frame that is whole.
inline std::uint32_t packed_crc_of(ByteSpan frame) noexcept {
  return load<std::uint32_t>(frame.data() + 24);
}

// Throws CorruptData or Unsupported.
RawFrame read_raw_frame(ByteSpan bytes);

// What all frames of tensors of one dtype and shape have in common, made once.
class FramePlan {
 public:
  FramePlan(const CodecSpec& spec, DType dtype, const Shape& shape);

  std::size_t bytes() const { return header_.size() + plan_.layout().max_bytes; }  // of write()
  std::size_t workspace_bytes() const { return plan_.layout().workspace_bytes; }

  // Writes the header and the packed tensor, and returns the bytes of both.
  std::size_t write(const ConstTensorView& in, std::span<std::byte> out,
                    const RunOptions& options) const;

 private:
  Plan plan_;
  std::vector<std::byte> header_;  // without the size of what follows, and the checksums
};

// Writes a frame around bytes that are packed already; `out` has room for header and bytes, which
// frame_header_bytes tells apart. Returns the bytes of both.
std::size_t frame_header_bytes(const CodecSpec& spec, const Shape& shape);
std::size_t write_packed_frame(const CodecSpec& spec, DType dtype, const Shape& shape,
                               ByteSpan packed, std::span<std::byte> out);

// The spec of a frame or a schema whose checksum is right: a text that does not parse is of a codec
// that this build does not know.
CodecSpec spec_in_file(std::string_view text);

}  // namespace tuckfold
