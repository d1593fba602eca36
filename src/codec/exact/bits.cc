#include "codec/exact/bits.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/dtype.h"
#include "base/element.h"
#include "base/fail.h"
#include "base/stream.h"
#include "codec/exact/exact_common.h"

namespace tuckfold::bits {
namespace {

constexpr ParamInfo kParams[] = {
    {.name = "width",
     .summary = "bits a value; left out: as many as the tensor's range takes",
     .min = 1,
     .max = 64,
     .optional = true},
};

Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  if (!is_whole(dtype)) {
    invalid("[layout] bits packs whole numbers, got {}; use mask or bytes_of, or a lossy codec",
            to_string(dtype));
  }
  const int width = given_width(stage);
  if (width > bits_of(dtype)) {
    invalid("[layout] bits(width={}) is wider than {} itself; use width={} or less", width,
            to_string(dtype), bits_of(dtype));
  }
  const std::int64_t elems = shape.elems();
  const std::size_t bytes =
      header_bytes(width, dtype, elems) + code_bytes(elems, width == 0 ? bits_of(dtype) : width);
  return {.max_bytes = bytes,
          .fixed = width != 0,
          .workspace_bytes = kNoteBytes,
          .dtype = DType::U8,
          .shape = {static_cast<std::int64_t>(bytes)}};
}

// A bound of a Range as the element's bits: those of u64 are ordered as i64 less 2^63.
std::uint64_t unbiased(DType dtype, std::int64_t bound) {
  const std::uint64_t bias = dtype == DType::U64 ? std::uint64_t{1} << 63 : 0;
  return static_cast<std::uint64_t>(bound) ^ bias;
}

Range range_of_all(const FlatReader& in, int threads) {
  std::atomic<std::int64_t> low{Range{}.low}, high{Range{}.high};
  for_each_range(in.elems(), threads, [&](std::int64_t begin, std::int64_t end) {
    const Range range = range_of(in, begin, end);
    for (std::int64_t seen = low;
         range.low < seen && !low.compare_exchange_weak(seen, range.low);) {
    }
    for (std::int64_t seen = high;
         range.high > seen && !high.compare_exchange_weak(seen, range.high);) {
    }
  });
  return {low, high};
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  if (reader.elems() == 0) return 0;
  int width = given_width(stage);
  std::int64_t minimum = 0;
  if (width != bits_of(in.dtype)) {
    const Range range = range_of_all(reader, run.threads);
    const int needed = needed_width(range);
    minimum = static_cast<std::int64_t>(unbiased(in.dtype, range.low));
    if (width != 0 && needed > width) refuse(width, in.dtype, range);
    std::memcpy(out.data(), &minimum, kMinimumBytes);
    if (width == 0) {
      width = needed;
      out[kMinimumBytes] = static_cast<std::byte>(width);
    }
  }
  const std::size_t header = header_bytes(given_width(stage), in.dtype, reader.elems());
  const std::size_t bytes = code_bytes(reader.elems(), width);
  const PackJob job{width, minimum, &reader, out.data() + header, bytes > kStreamBytes};
  if (width > 0) {
    for_each_range(reader.elems(), run.threads,
                   [&](std::int64_t begin, std::int64_t end) { pack_codes(job, begin, end); });
  }
  return header + bytes;
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FlatWriter writer(out);
  if (writer.elems() == 0) return;
  int width = given_width(stage);
  const std::size_t header = header_bytes(width, out.dtype, writer.elems());
  check_header(width, packed.size(), out);
  std::int64_t minimum = 0;
  if (header != 0) std::memcpy(&minimum, packed.data(), kMinimumBytes);
  if (width == 0) {
    width = static_cast<int>(packed[kMinimumBytes]);
    check_width(width, packed.size(), out);
  }
  const std::size_t out_bytes = static_cast<std::size_t>(writer.elems()) * size_bytes(out.dtype);
  const UnpackJob job{width, minimum, packed.data() + header, &writer, out_bytes > kStreamBytes};
  for_each_range(writer.elems(), run.threads,
                 [&](std::int64_t begin, std::int64_t end) { unpack_codes(job, begin, end); });
}

}  // namespace

void refuse(int width, DType dtype, const Range& range) {
  invalid("[pack] bits(width={}) holds a range of {} values, got {}..{}; use width={} or more",
          width, std::uint64_t{1} << width, element_text(dtype, unbiased(dtype, range.low)),
          element_text(dtype, unbiased(dtype, range.high)), needed_width(range));
}

void check_header(int given_width, std::size_t packed_bytes, const TensorView& out) {
  const std::size_t header = header_bytes(given_width, out.dtype, out.shape.elems());
  if (packed_bytes < header) {
    fail(Errc::CorruptData, "[unpack] bits packs to {} bytes or more, got {}", header,
         packed_bytes);
  }
}

void check_width(int width, std::size_t packed_bytes, const TensorView& out) {
  if (width > bits_of(out.dtype)) {
    fail(Errc::CorruptData, "[unpack] the width of {} in bits must be 0..{}, got {}",
         to_string(out.dtype), bits_of(out.dtype), width);
  }
  const std::size_t bytes =
      header_bytes(0, out.dtype, out.shape.elems()) + code_bytes(out.shape.elems(), width);
  if (packed_bytes != bytes) {
    fail(Errc::CorruptData, "[unpack] bits of {} {} in {} bits each takes {} bytes, got {}",
         to_string(out.dtype), to_string(out.shape), width, bytes, packed_bytes);
  }
}

}  // namespace tuckfold::bits

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {{"bits"}};

}  // namespace

const Codec kBits = {
    .info = {.name = "bits",
             .summary = "whole numbers in a few bits each, exactly",
             .params = bits::kParams},
    .exact = true,
    .layout = bits::layout_of,
    .pack = bits::pack_all,
    .unpack = bits::unpack_all,
    .cuda = &bits::kCuda,
    .reports = true,
    .ladders = kLadders,
};

}  // namespace tuckfold
