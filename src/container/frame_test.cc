// Frames: what was packed comes back, and no byte of one can change unseen.
#include "container/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/tensor_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

std::vector<std::byte> frame_of(const char* spec, const ref::Tensor& tensor) {
  const CodecSpec codec = CodecSpec::parse(spec);
  std::vector<std::byte> out(frame_bytes(codec, tensor.dtype(), tensor.shape()));
  out.resize(write_frame(codec, tensor.view(), out));
  return out;
}

ref::Tensor ramp(DType dtype, const Shape& shape) {
  ref::Tensor tensor(dtype, shape);
  tensor.fill(ref::Pattern::Random);
  return tensor;
}

Errc code_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::Internal;
}

TEST(Frame, SaysHowToUnpackItself) {
  const ref::Tensor in = ramp(DType::F16, {3, 16, 24});
  const std::vector<std::byte> bytes = frame_of("dct_chop(keep=8) | zstd", in);
  const FrameHeader header = read_frame_header(bytes);
  EXPECT_EQ(header.dtype, DType::F16);
  EXPECT_EQ(header.shape, Shape({3, 16, 24}));
  EXPECT_EQ(header.codec, CodecSpec::parse("dct_chop(keep=8) | zstd"));
  EXPECT_EQ(header.header_bytes % 16, 0u);
  EXPECT_EQ(header.header_bytes + header.packed_bytes, bytes.size());
  const ref::Tensor out(DType::F16, {3, 16, 24}), wanted(DType::F16, {3, 16, 24});
  unpack_frame(bytes, out.view());
  unpack(header.codec, std::span(bytes).subspan(header.header_bytes), wanted.view());
  EXPECT_EQ(out.bytes(), wanted.bytes());
}

TEST(Frame, EveryDtypeHasItsNumberAndComesBack) {
  for (const char* spec : {"raw", "zstd"}) {
    for (const DType dtype : kDTypes) {
      const ref::Tensor in = ramp(dtype, {3, 5});
      const std::vector<std::byte> bytes = frame_of(spec, in);
      EXPECT_EQ(bytes[5], static_cast<std::byte>(dtype));
      EXPECT_EQ(read_frame_header(bytes).dtype, dtype);
      const ref::Tensor out(dtype, {3, 5});
      unpack_frame(bytes, out.view());
      EXPECT_EQ(out.bytes(), in.bytes()) << to_string(dtype);
    }
  }
}

TEST(Frame, ScalarsAndEmptyTensorsHaveFrames) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 8}, Shape{1}}) {
    const ref::Tensor in = ramp(DType::I64, shape);
    const std::vector<std::byte> bytes = frame_of("raw", in);
    const ref::Tensor out(DType::I64, shape);
    unpack_frame(bytes, out.view());
    EXPECT_EQ(out.bytes(), in.bytes());
  }
}

TEST(Frame, EveryByteThatChangesIsSeen) {
  const ref::Tensor in = ramp(DType::F32, {2, 8, 8});
  const std::vector<std::byte> whole = frame_of("dct_chop(keep=2)", in);
  const ref::Tensor out(DType::F32, {2, 8, 8});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::vector<std::byte> bytes = whole;
      bytes[i] ^= static_cast<std::byte>(flip);
      const Errc code = code_of([&] { unpack_frame(bytes, out.view()); });
      ASSERT_TRUE(code == Errc::CorruptData || code == Errc::Unsupported) << "byte " << i;
    }
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<long>(size));
    ASSERT_EQ(code_of([&] { unpack_frame(part, out.view()); }), Errc::CorruptData) << size;
  }
}

TEST(Frame, OutputsOfAnotherShapeAreInvalid) {
  const ref::Tensor in = ramp(DType::F32, {4, 8});
  const std::vector<std::byte> bytes = frame_of("raw", in);
  const ref::Tensor other(DType::F32, {8, 4}), wide(DType::F64, {4, 8});
  EXPECT_EQ(code_of([&] { unpack_frame(bytes, other.view()); }), Errc::InvalidArgument);
  EXPECT_EQ(code_of([&] { unpack_frame(bytes, wide.view()); }), Errc::InvalidArgument);
  std::vector<std::byte> room(frame_bytes(CodecSpec::parse("raw"), DType::F32, {4, 8}) - 1);
  EXPECT_EQ(code_of([&] { write_frame(CodecSpec::parse("raw"), in.view(), room); }),
            Errc::InvalidArgument);
}

TEST(Frame, EqualValuesComeBackHoweverFewBytesTheyTake) {
  for (const char* spec : {"bits", "bits | zstd", "zstd | zstd"}) {
    const ref::Tensor in(DType::U8, {16 << 20}), out(DType::U8, {16 << 20});
    const std::vector<std::byte> bytes = frame_of(spec, in);
    EXPECT_LT(bytes.size(), (std::size_t{16} << 20) / 32768) << spec;
    EXPECT_EQ(read_frame_header(bytes).shape, in.shape()) << spec;
    unpack_frame(bytes, out.view());
    EXPECT_EQ(out.bytes(), in.bytes()) << spec;
  }
}

// A frame around bytes, with right checksums, whatever they claim.
std::vector<std::byte> claim(const char* spec, DType dtype, const Shape& shape, std::size_t bytes) {
  const CodecSpec codec = CodecSpec::parse(spec);
  const std::vector<std::byte> packed(bytes);
  std::vector<std::byte> out(frame_header_bytes(codec, shape) + bytes);
  write_packed_frame(codec, dtype, shape, packed, out);
  return out;
}

TEST(Frame, AFewBytesDoNotClaimMuch) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  EXPECT_EQ(read_frame_header(claim("bits", DType::U8, {kGiB}, 9)).shape, Shape({kGiB}));
  for (const Shape& shape : {Shape{kGiB + 32768}, Shape{kGiB, 4}, Shape{kGiB, kGiB}}) {
    const std::vector<std::byte> bytes = claim("bits", DType::U8, shape, 9);
    EXPECT_EQ(code_of([&] { read_frame_header(bytes); }), Errc::CorruptData);
    EXPECT_EQ(code_of([&] { check_claim(CodecSpec::parse("bits"), DType::U8, shape, 73); }),
              Errc::InvalidArgument);
  }
  check_claim(CodecSpec::parse("zstd"), DType::U8, {4 * kGiB}, 4 * kGiB / 32768);
}

TEST(Frame, ACodecThatDoesNotPackTheTensorIsCorrupt) {
  for (const auto& bytes :
       {claim("dct_quant(rate=4)", DType::I64, {8, 8}, 9), claim("raw", DType::F32, {8, 8}, 255),
        claim("zstd", DType::F32, {2}, 4000)}) {
    EXPECT_EQ(code_of([&] { read_frame_header(bytes); }), Errc::CorruptData);
  }
}

}  // namespace
}  // namespace tuckfold
