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

// A frame of more than this must have a 32768th of its tensor's bytes. Some codecs pack equal values
// to a few bytes, whatever their number, so that the size of a tensor does not follow from that of
// its frame: up to here readers trust the header. Memory that is reserved and not written costs
// little.
inline constexpr std::uint64_t kTrustedBytes = std::uint64_t{1} << 30;
bool claims_too_much(DType dtype, const Shape& shape, std::size_t frame_bytes);
// Throws InvalidArgument if readers would refuse the frame for that.
void check_claim(const CodecSpec& spec, DType dtype, const Shape& shape, std::size_t frame_bytes);

// The spec of a frame. Throws Unsupported if the codec is not known, CorruptData if it does not pack
// such tensors to so many bytes, or the frame claims too much.
CodecSpec checked_spec(const RawFrame& frame);

// The common part of all frames of tensors of one dtype and shape, made once.
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

// Writes a frame around bytes that are already packed; `out` has room for the header, of
// frame_header_bytes, and the bytes. Returns the bytes of both.
std::size_t frame_header_bytes(const CodecSpec& spec, const Shape& shape);
std::size_t write_packed_frame(const CodecSpec& spec, DType dtype, const Shape& shape,
                               ByteSpan packed, std::span<std::byte> out);

// The spec of a frame or a schema with a valid checksum: if the text does not parse, this build
// does not know the codec.
CodecSpec spec_in_file(std::string_view text);

}  // namespace tuckfold
