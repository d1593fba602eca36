// bounded's bytes against its documentation: a second decoder has the same values, and damage is found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_fixture.h"
#include "codec/bounded/bounded.h"
#include "codec/bounded/bounded_block.h"
#include "codec/bounded/bounded_fixture.h"
#include "codec/bounded/bounded_ref.h"
#include "codec/contract_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::kCodes;
using ref::mixture;
using ref::pack_tensor;
using ref::Packed;
using ref::spec_text;
using ref::Tensor;

TEST(BoundedFormat, PackedBitsDecodeFromTheDocumentation) {
  for (const DType dtype : ref::kLossyDTypes) {
    for (const bool exact : {false, true}) {
      for (const char* kind : {"abs", "rel"}) {
        for (const double bound : {2e-5, 1e-3, 0.02, 2.5}) {
          Tensor in(dtype, {3000});
          std::vector<double> values = ref::pattern(ref::Pattern::Random, dtype, in.elems());
          for (std::size_t i = 0; i < 1000; ++i)
            values[i] = values[0] + 0.01 * std::sin(0.01 * static_cast<double>(i));
          for (std::size_t i = 1024; i < 2048; i += 3) values[i] = 0;
          values[2100] = is_whole(dtype) ? 7 : std::nan("");
          in.fill(values);
          const Packed packed = pack_tensor(spec_text(kind, bound, "bits", exact), in);
          const std::vector<double> expected =
              bounded_ref::unpack_bits(dtype, in.elems(), *kind == 'r', bound, exact, packed.bytes);
          const std::vector<double> got = packed.unpack(in).values();
          ASSERT_EQ(got.size(), expected.size());
          for (std::size_t i = 0; i < got.size(); ++i) {
            if (!std::isnan(expected[i]) || !std::isnan(got[i])) {
              ASSERT_EQ(got[i], expected[i])
                  << to_string(dtype) << ' ' << kind << bound << " at " << i;
            }
          }
        }
      }
    }
  }
}

TEST(BoundedFormat, RowsOfEveryFormDecodeFromTheDocumentation) {
  std::set<std::pair<int, int>> seen;     // form and mask bits
  std::set<std::pair<int, int>> numbers;  // form and what the numbers are
  for (const ref::SteppedValues& stepped : ref::stepped_values()) {
    Tensor in(DType::F32, {1024});
    in.fill(stepped.values);
    const Packed packed = pack_tensor("bounded(abs=0.5, codes=bits)", in);
    const int what = static_cast<int>(packed.bytes[7]), first = static_cast<int>(packed.bytes[6]);
    seen.insert({what >> 2, what >> 2 == 0 ? 0 : first});
    numbers.insert({what >> 2, what & 3});
    const auto expected =
        bounded_ref::unpack_bits(DType::F32, 1024, false, 0.5, false, packed.bytes);
    ASSERT_EQ(packed.unpack(in).values(), expected) << stepped.name;
    ASSERT_EQ(expected.size(), stepped.values.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_LE(std::abs(expected[i] - stepped.values[i]), 0.5) << stepped.name << " at " << i;
    }
  }
  const std::set<std::pair<int, int>> all = {{0, 0}, {1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 0}};
  EXPECT_EQ(seen, all);
  const std::set<std::pair<int, int>> both = {{0, 0}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 2}};
  EXPECT_EQ(numbers, both);
}

TEST(BoundedFormat, FormsThatDoNotExistAreCorruptData) {
  for (const ref::SteppedValues& stepped : ref::stepped_values()) {
    Tensor in(DType::F32, {1024});
    in.fill(stepped.values);
    const Packed packed = pack_tensor("bounded(abs=0.5, codes=bits)", in);
    const auto refused = [&](std::size_t at, int byte) {
      Packed damaged = packed;
      damaged.bytes[at] = static_cast<std::byte>(byte);
      return ref::code_of([&] { damaged.unpack(in); }) == Errc::CorruptData;
    };
    const int front = static_cast<int>(packed.bytes[7]), form = front >> 2;
    EXPECT_TRUE(refused(7, 12)) << stepped.name;         // form 3
    EXPECT_TRUE(refused(7, 255)) << stepped.name;        // a form past all
    EXPECT_TRUE(refused(7, front | 3)) << stepped.name;  // numbers of no kind
    for (const int bits : {0, 3, 5, 16, 255}) {
      EXPECT_TRUE(form != 1 || refused(6, bits)) << stepped.name << bits;
    }
    if (form == 2) {  // more full planes than planes
      const int width = static_cast<int>(packed.bytes[8]) & 15;
      EXPECT_TRUE(width == 15 || refused(8, width | (width + 1) << 4)) << stepped.name;
    }
  }
}

TEST(BoundedFormat, PackedBytesDecodeFromTheDocumentation) {
  struct Size {
    std::int64_t planes, rows, cols;
  };
  for (const DType dtype : ref::kLossyDTypes) {
    for (const Size& size : {Size{7, 64, 100}, Size{2, 33, 514}, Size{60, 9, 7}, Size{1, 1, 3000},
                             Size{300, 8, 8}, Size{40, 2, 26}}) {
      const Shape shape{size.planes, size.rows, size.cols};
      Tensor in(dtype, shape);
      in.fill(mixture(dtype, size.planes, size.rows, size.cols));
      for (const bool exact : {false, true}) {
        for (const char* kind : {"abs", "rel"}) {
          for (const double bound : {1e-5, 1e-3, 0.02, 1.5}) {
            const std::string text = spec_text(kind, bound, "bytes", exact);
            SCOPED_TRACE(fmt::format("{} of {} {}", text, to_string(dtype), to_string(shape)));
            const Packed packed = pack_tensor(text, in);
            const auto decode = dtype == DType::F64 ? bounded_ref::unpack_bytes<double>
                                                    : bounded_ref::unpack_bytes<float>;
            const std::vector<double> expected = decode(dtype, size.planes, size.rows, size.cols,
                                                        *kind == 'r', bound, exact, packed.bytes);
            const std::vector<double> got = packed.unpack(in).values();
            ASSERT_EQ(got.size(), expected.size());
            for (std::size_t i = 0; i < got.size(); ++i) {
              if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
              ASSERT_EQ(got[i], expected[i]) << "at " << i;
            }
          }
        }
      }
    }
  }
}

TEST(BoundedFormat, DamagedBytesAreCorruptDataOrValues) {
  std::mt19937 random(3);
  for (const char* codes : kCodes) {
    for (const DType dtype : ref::kLossyDTypes) {
      const Shape shape{5, 64, 33};
      Tensor in(dtype, shape);
      in.fill(ref::pattern(ref::Pattern::Ramp, dtype, in.elems()));
      for (const char* kind : {"abs", "rel"}) {
        const Packed packed = pack_tensor(spec_text(kind, 0.003, codes), in);
        const Tensor out(dtype, shape, ref::Order::Gapped);
        for (int trial = 0; trial < 80; ++trial) {
          std::vector<std::byte> bytes = packed.bytes;
          for (auto n = 1 + random() % 3; n > 0; --n) {
            // The front decides most.
            const std::size_t reach =
                random() % 2 == 0 ? std::min<std::size_t>(80, bytes.size()) : bytes.size();
            bytes[random() % reach] = static_cast<std::byte>(random());
          }
          if (random() % 4 == 0) bytes.resize(random() % bytes.size());
          try {
            tuckfold::unpack(packed.spec, bytes, out.view());
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
          }
          ASSERT_TRUE(out.gaps_untouched());
        }
      }
    }
  }
}

// Headers of codes=bits that say every number of words, with as many bytes after them.
TEST(BoundedFormat, ForgedHeadersAreCorruptDataOrValues) {
  const Shape shape{2 * bounded::kChunk};
  const CodecSpec spec = CodecSpec::parse("bounded(abs=0.1)");
  for (const DType dtype : ref::kLossyDTypes) {
    const Tensor out(dtype, shape, ref::Order::Gapped);
    int refused = 0;
    for (unsigned words = 0; words < 1U << 13; words += words % 16 == 1 ? 15 : 1) {
      const std::size_t size = 2 * (bounded::kHeaderBytes + 2 * std::size_t{words});
      if (size >= layout(spec, dtype, shape).max_bytes) break;
      for (const unsigned kind : {0, 5, bounded::kSame, bounded::kKept}) {
        std::vector<std::byte> bytes(size, std::byte{255});
        const unsigned both = words << 3 | kind;
        for (const std::size_t chunk : {0, 1}) {
          std::memcpy(bytes.data() + chunk * bounded::kHeaderBytes + 4, &both, 2);
        }
        try {
          tuckfold::unpack(spec, bytes, out.view());
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
          ++refused;
        }
        ASSERT_TRUE(out.gaps_untouched());
      }
    }
    EXPECT_GT(refused, 100);
  }
}

}  // namespace
}  // namespace tuckfold
