// A frame: a header that says how to unpack, one packed tensor, and two checksums.
#include "container/frame.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/fail.h"
#include "container/format.h"

namespace tuckfold {
namespace {

constexpr std::string_view kMagic = "TkFr";
constexpr std::uint8_t kVersion = 1;

// The offsets of the fields.
constexpr std::size_t kVersionAt = 4, kDTypeAt = 5, kRankAt = 6, kFlagsAt = 7, kSpecBytesAt = 8,
                      kHeaderCrcAt = 12, kPackedBytesAt = 16, kPackedCrcAt = 24;

std::size_t header_bytes(std::size_t rank, std::size_t spec_bytes) {
  return round_up(kFrameHeadBytes + 8 * rank + spec_bytes, kFrameAlign);
}

// The checksum of the header, with zeros in place of the checksum itself.
std::uint32_t header_crc(ByteSpan header) {
  constexpr std::byte kZeros[4] = {};
  std::uint32_t crc = crc32c(header.first(kHeaderCrcAt));
  crc = crc32c(kZeros, crc);
  return crc32c(header.subspan(kHeaderCrcAt + 4), crc);
}

// A header without the size of the packed bytes and the checksums.
std::vector<std::byte> make_header(const CodecSpec& spec, DType dtype, const Shape& shape) {
  const std::string text = spec.print();
  std::vector<std::byte> header(header_bytes(shape.rank(), text.size()));
  std::byte* const to = header.data();
  store_text(to, kMagic);
  store(to + kVersionAt, kVersion);
  store(to + kDTypeAt, static_cast<std::uint8_t>(dtype));
  store(to + kRankAt, static_cast<std::uint8_t>(shape.rank()));
  store(to + kSpecBytesAt, static_cast<std::uint32_t>(text.size()));
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    store(to + kFrameHeadBytes + 8 * axis, shape[axis]);
  }
  store_text(to + kFrameHeadBytes + 8 * shape.rank(), text);
  return header;
}

// Writes the header before `packed` bytes that are in place.
void put_header(ByteSpan header, std::size_t packed, std::span<std::byte> out) {
  std::byte* const to = out.data();
  std::copy(header.begin(), header.end(), to);
  store(to + kPackedBytesAt, std::uint64_t{packed});
  store(to + kPackedCrcAt, crc32c(out.subspan(header.size(), packed)));
  store(to + kHeaderCrcAt, header_crc(out.first(header.size())));
}

template <class... Args>
[[noreturn]] void corrupt(fmt::format_string<Args...> text, Args&&... args) {
  fail(Errc::CorruptData, "[frame] {}", fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

bool RawFrame::packed_is_whole() const noexcept { return crc32c(packed) == packed_crc; }

CodecSpec spec_in_file(std::string_view text) {
  try {
    return CodecSpec::parse(text);
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    fail(Errc::Unsupported,
         "[frame] packed by a codec that is not known here; {}; a newer tuckfold may know it",
         error.what());
  }
}

RawFrame read_raw_frame(ByteSpan bytes) {
  if (!begins_with(bytes, kMagic)) corrupt("a frame begins with '{}'; these bytes do not", kMagic);
  if (bytes.size() < kFrameHeadBytes) {
    corrupt("a frame has at least {} bytes, got {}", kFrameHeadBytes, bytes.size());
  }
  const auto u8_at = [&](std::size_t at) { return load<std::uint8_t>(bytes.data() + at); };
  if (u8_at(kVersionAt) != kVersion) {
    fail(Errc::Unsupported, "[frame] version {} can be read, got {}; a newer tuckfold may read it",
         kVersion, u8_at(kVersionAt));
  }
  const std::size_t rank = u8_at(kRankAt);
  const std::size_t spec_bytes = load<std::uint32_t>(bytes.data() + kSpecBytesAt);
  const std::size_t header = header_bytes(rank, spec_bytes);
  if (rank > Shape::kMaxRank || header > bytes.size()) corrupt("the frame ends within its header");
  if (header_crc(bytes.first(header)) != load<std::uint32_t>(bytes.data() + kHeaderCrcAt)) {
    corrupt("the checksum of the header is wrong");
  }
  if (u8_at(kFlagsAt) != 0) {
    fail(Errc::Unsupported, "[frame] flags {:#x} are not known here; a newer tuckfold may read it",
         u8_at(kFlagsAt));
  }
  if (u8_at(kDTypeAt) >= kDTypes.size()) {
    fail(Errc::Unsupported, "[frame] dtype {} is not known here; a newer tuckfold may read it",
         u8_at(kDTypeAt));
  }
  const auto packed_bytes = load<std::uint64_t>(bytes.data() + kPackedBytesAt);
  if (packed_bytes > bytes.size() - header) {
    corrupt("{} packed bytes must follow the header, got {}", packed_bytes, bytes.size() - header);
  }
  RawFrame frame{.dtype = kDTypes[u8_at(kDTypeAt)],
                 .shape = {},
                 .spec = text_of(bytes.subspan(kFrameHeadBytes + 8 * rank, spec_bytes)),
                 .header_bytes = header,
                 .packed = bytes.subspan(header, packed_bytes),
                 .packed_crc = load<std::uint32_t>(bytes.data() + kPackedCrcAt)};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    frame.shape.push_back(load<std::int64_t>(bytes.data() + kFrameHeadBytes + 8 * axis));
  }
  try {
    static_cast<void>(frame.shape.elems());
  } catch (const Error&) {
    corrupt("no tensor has the shape {}", to_string(frame.shape));
  }
  return frame;
}

bool claims_too_much(DType dtype, const Shape& shape, std::size_t frame_bytes) {
  const auto elems = static_cast<std::uint64_t>(shape.elems());
  return elems > kTrustedBytes / size_bytes(dtype) && passes_ratio(dtype, shape, frame_bytes);
}

void check_claim(const CodecSpec& spec, DType dtype, const Shape& shape, std::size_t frame_bytes) {
  if (!claims_too_much(dtype, shape, frame_bytes)) return;
  invalid(
      "[frame] a tensor of more than 1 GiB needs at least a {}th of its bytes, {} {} has {} with "
      "{}; use zstd, which stays above it",
      kMaxRatio, to_string(dtype), to_string(shape), frame_bytes, spec.print());
}

CodecSpec checked_spec(const RawFrame& frame) {
  CodecSpec spec = spec_in_file(frame.spec);
  std::string why;
  const std::optional<Plan> plan = Plan::make_if_fits(spec, frame.dtype, frame.shape, &why);
  if (!plan) corrupt("its codec does not pack its tensor; {}", why);
  const Layout& layout = plan->layout();
  const std::size_t got = frame.packed.size();
  if (layout.fixed ? got != layout.max_bytes : got > layout.max_bytes) {
    corrupt("{} of {} {} packs to {}{} bytes, got {}", spec.print(), to_string(frame.dtype),
            to_string(frame.shape), layout.fixed ? "" : "at most ", layout.max_bytes, got);
  }
  if (claims_too_much(frame.dtype, frame.shape, frame.header_bytes + got)) {
    corrupt("{} bytes claim to be {} {}", frame.header_bytes + got, to_string(frame.dtype),
            to_string(frame.shape));
  }
  return spec;
}

FramePlan::FramePlan(const CodecSpec& spec, DType dtype, const Shape& shape)
    : plan_(spec, dtype, shape), header_(make_header(spec, dtype, shape)) {}

std::size_t FramePlan::write(const ConstTensorView& in, std::span<std::byte> out,
                             const RunOptions& options) const {
  if (in.device != Device::Cpu) {
    fail(Errc::Unsupported, "[frame] frames are written on the CPU; copy the tensor there first");
  }
  if (out.size() < bytes()) {
    invalid("[frame] the output needs {} bytes, got {}; see frame_bytes()", bytes(), out.size());
  }
  const std::size_t packed = plan_.pack(in, out.subspan(header_.size()), options);
  put_header(header_, packed, out);
  return header_.size() + packed;
}

std::size_t frame_bytes(const CodecSpec& spec, DType dtype, const Shape& shape) {
  return FramePlan(spec, dtype, shape).bytes();
}

std::size_t write_frame(const CodecSpec& spec, const ConstTensorView& in, std::span<std::byte> out,
                        const RunOptions& options) {
  const std::size_t bytes = FramePlan(spec, in.dtype, in.shape).write(in, out, options);
  check_claim(spec, in.dtype, in.shape, bytes);
  return bytes;
}

std::size_t frame_header_bytes(const CodecSpec& spec, const Shape& shape) {
  return header_bytes(shape.rank(), spec.print().size());
}

std::size_t write_packed_frame(const CodecSpec& spec, DType dtype, const Shape& shape,
                               ByteSpan packed, std::span<std::byte> out) {
  const std::vector<std::byte> header = make_header(spec, dtype, shape);
  std::copy(packed.begin(), packed.end(), out.begin() + static_cast<std::ptrdiff_t>(header.size()));
  put_header(header, packed.size(), out);
  return header.size() + packed.size();
}

FrameHeader read_frame_header(std::span<const std::byte> bytes) {
  const RawFrame frame = read_raw_frame(bytes);
  return {.dtype = frame.dtype,
          .shape = frame.shape,
          .codec = checked_spec(frame),
          .header_bytes = frame.header_bytes,
          .packed_bytes = frame.packed.size()};
}

void unpack_frame(std::span<const std::byte> bytes, const TensorView& out,
                  const RunOptions& options) {
  const RawFrame frame = read_raw_frame(bytes);
  if (out.device != Device::Cpu) {
    fail(Errc::Unsupported,
         "[frame] frames are unpacked on the CPU; copy the packed bytes and call unpack() there");
  }
  if (frame.dtype != out.dtype || frame.shape != out.shape) {
    invalid("[frame] the frame holds {} {}, the output is {} {}", to_string(frame.dtype),
            to_string(frame.shape), to_string(out.dtype), to_string(out.shape));
  }
  if (!frame.packed_is_whole()) corrupt("the checksum of the packed bytes is wrong");
  unpack(checked_spec(frame), frame.packed, out, options);
}

}  // namespace tuckfold
