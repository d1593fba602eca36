// The kernels of dct_quant against its normative scalar functions, bit for bit: every target, rates
// with every number of coded tiles, batches full and partial, blocks of very different kinds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "base/guarded_fixture.h"
#include "base/stream.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/dct_quant/dct_quant.h"
#include "codec/dct_quant/dct_quant_ref.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using dct_quant::Params;
using ref::Buffer;
using ref::first_difference;
using ref::Guarded;
using ref::Tensor;

// 6, 8, 10, 12, 14 and 16 coded tiles; the last two are past what the kernels of 512 bits take.
constexpr double kRates[] = {1, 1.375, 1.75, 2, 2.5, 3, 4.125, 8, 8.125, 16};

CodecSpec spec_of(double rate, int dc, const char* more = "") {
  return CodecSpec::parse(fmt::format("dct_quant(rate={}, dc={}{})", rate, dc, more));
}

// ---- blocks of many kinds -----------------------------------------------------------------------

enum class Kind {
  Noise,
  Smooth,
  Sparse,
  Steep,
  Huge,
  Small,
  Zero,
  Constant,
  Integers,
  Edge,
  Broken
};
constexpr int kKinds = 11;

void fill_block(Kind kind, std::mt19937& random, double* block) {
  const auto uniform = [&] { return static_cast<double>(random()) / 2147483648.0 - 1; };
  const double a = uniform(), b = uniform(), c = uniform(), size = std::exp2(8 * uniform());
  // Around the largest that a width holds.
  const float edge = float_of(bits_of(2 + 0.5f * static_cast<float>(random() % 4)) - random() % 4);
  for (int i = 0; i < 64; ++i) {
    const double r = i / 8, s = i % 8;
    double value = 0;
    switch (kind) {
      case Kind::Noise: value = size * uniform(); break;
      case Kind::Smooth: value = size * (std::sin(a * r + b * s) + 5 * c); break;
      case Kind::Sparse: value = random() % 16 == 0 ? size * uniform() : 0; break;
      case Kind::Steep: value = size * (1000 * c + a * r + 1e-4 * uniform()); break;
      case Kind::Huge: value = std::exp2(116 + 12 * a) * uniform(); break;
      case Kind::Small: value = std::exp2(-120 + 29 * a) * uniform(); break;
      case Kind::Zero: break;
      case Kind::Constant: value = size * c; break;
      case Kind::Integers: value = std::floor(128 * (1 + a * uniform())); break;
      case Kind::Edge: {
        const auto wave =
            static_cast<float>(std::sqrt(1 / 32.0) * std::cos(std::numbers::pi * (2 * s + 1) / 16));
        value = edge * wave;
        break;
      }
      case Kind::Broken:
        value = random() % 40 == 0 ? std::exp2(2000 * uniform()) : uniform();
        break;
    }
    block[i] = value;
  }
}

// A tensor of planes of rows x cols; each block's kind by chance, or all alike.
Tensor blocks_tensor(DType dtype, const Shape& shape, unsigned seed, int kind = -1,
                     ref::Order order = ref::Order::RowMajor) {
  std::mt19937 random(seed);
  Tensor tensor(dtype, shape, order);
  std::vector<double> values(static_cast<std::size_t>(tensor.elems()));
  const std::int64_t cols = shape[shape.rank() - 1], rows = tensor.elems() / cols;
  double block[64];
  for (std::int64_t r = 0; r < rows; r += 8) {
    for (std::int64_t c = 0; c < cols; c += 8) {
      fill_block(static_cast<Kind>(kind < 0 ? static_cast<int>(random() % kKinds) : kind), random,
                 block);
      for (int i = 0; i < 64; ++i) {
        if (r + i / 8 >= rows || c + i % 8 >= cols) continue;
        values[static_cast<std::size_t>((r + i / 8) * cols + c + i % 8)] = block[i];
      }
    }
  }
  tensor.fill(values);
  return tensor;
}

// ---- the codec in terms of dct_quant_block.h alone ----------------------------------------------

struct Plane {
  std::int64_t planes, rows, cols;
  std::int64_t down() const { return (rows + 7) / 8; }
  std::int64_t across() const { return (cols + 7) / 8; }

  static Plane of(const Shape& shape) {
    return {shape.rank() == 3 ? shape[0] : 1, shape[shape.rank() - 2], shape[shape.rank() - 1]};
  }
  // visit(block's index, value's place in it, place in the tensor, whether that is inside)
  template <class Visit>
  void for_each_value(Visit&& visit) const {
    for (std::int64_t b = 0; b < planes * down() * across(); ++b) {
      const std::int64_t plane = b / across() / down(), r = b / across() % down() * 8;
      const std::int64_t c = b % across() * 8;
      for (int i = 0; i < 64; ++i) {
        const std::int64_t row = std::min(r + i / 8, rows - 1), col = std::min(c + i % 8, cols - 1);
        visit(b, i, (plane * rows + row) * cols + col, r + i / 8 < rows && c + i % 8 < cols);
      }
    }
  }
};

std::vector<std::byte> normative_pack(const Params& p, const Tensor& in) {
  const Plane g = Plane::of(in.shape());
  const auto bytes = static_cast<std::size_t>(p.form.bytes);
  std::vector<std::byte> packed(static_cast<std::size_t>(g.planes * g.down() * g.across()) * bytes);
  float x[64];
  g.for_each_value([&](std::int64_t b, int i, std::int64_t at, bool) {
    x[i] = static_cast<float>(in.get(at)) - p.offset;
    if (i < 63) return;
    auto* out =
        reinterpret_cast<std::uint8_t*>(packed.data() + static_cast<std::size_t>(b) * bytes);
    dct_quant::pack_block(p.form, x, out);
  });
  return packed;
}

std::vector<std::byte> normative_unpack(const Params& p, std::span<const std::byte> packed,
                                        DType dtype, const Shape& shape) {
  const Plane g = Plane::of(shape);
  const auto bytes = static_cast<std::size_t>(p.form.bytes);
  std::vector<std::byte> out(static_cast<std::size_t>(shape.elems()) * size_bytes(dtype));
  float x[64];
  g.for_each_value([&](std::int64_t b, int i, std::int64_t at, bool inside) {
    const auto* block =
        reinterpret_cast<const std::uint8_t*>(packed.data() + static_cast<std::size_t>(b) * bytes);
    if (i == 0) dct_quant::unpack_block(p.form, block, x);
    if (inside) ref::set(dtype, out.data(), at, dct_quant::finished(x[i], p.offset, p.clamp));
  });
  return out;
}

// ---- on every target ----------------------------------------------------------------------------

class DctQuantBits : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use_cpu_target(GetParam()); }
  void TearDown() override { use_cpu_target(before_); }

  static void expect_normative_unpack(const CodecSpec& spec, std::span<const std::byte> packed,
                                      DType dtype, const Shape& shape,
                                      ref::Order order = ref::Order::RowMajor, int threads = 1) {
    const std::vector<std::byte> wanted =
        normative_unpack(Params::of(spec.stages()[0]), packed, dtype, shape);
    const Tensor out(dtype, shape, order);
    unpack(spec, packed, out.view(), {.threads = threads});
    ASSERT_EQ(first_difference(dtype, out.bytes(), wanted), "")
        << "unpack " << spec.print() << " of " << to_string(dtype) << ' ' << to_string(shape);
    ASSERT_TRUE(out.gaps_untouched());
  }
  static void expect_normative(const CodecSpec& spec, const Tensor& in,
                               ref::Order order = ref::Order::RowMajor, int threads = 1) {
    const std::vector<std::byte> packed = normative_pack(Params::of(spec.stages()[0]), in);
    const Buffer got(packed.size());
    ASSERT_EQ(pack(spec, in.view(), got.span(), {.threads = threads}), packed.size());
    ASSERT_EQ(first_difference(DType::U8, got.span(), packed), "")
        << "pack " << spec.print() << " of " << to_string(in.dtype()) << ' '
        << to_string(in.shape());
    expect_normative_unpack(spec, packed, in.dtype(), in.shape(), order, threads);
  }

 private:
  std::string before_ = cpu_target();
};

TEST_P(DctQuantBits, EveryKindOfBlock) {
  for (const double rate : kRates) {
    for (const int dc : {4, 8, 12}) {
      for (int kind = 0; kind < kKinds; ++kind) {
        SCOPED_TRACE(kind);
        const Tensor in = blocks_tensor(DType::F32, {32, 520}, 1 + static_cast<unsigned>(dc), kind);
        expect_normative(spec_of(rate, dc), in);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DctQuantBits, EveryRate) {
  for (int eighths = 8; eighths <= 128; ++eighths) {
    for (const int dc : {4, 8, 12}) {
      const Tensor in = blocks_tensor(DType::F32, {16, 264}, static_cast<unsigned>(eighths + dc));
      expect_normative(spec_of(eighths / 8.0, dc), in);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctQuantBits, BatchesOfEveryLength) {
  for (std::int64_t blocks = 1; blocks <= 70; ++blocks) {
    for (const double rate : kRates) {
      const Tensor in = blocks_tensor(DType::F32, {blocks % 3 == 0 ? 24 : 8, 8 * blocks},
                                      static_cast<unsigned>(blocks));
      expect_normative(spec_of(rate, blocks % 2 == 0 ? 8 : 4), in);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctQuantBits, StridesThreadsAndWideBlockRows) {
  for (const double rate : kRates) {
    for (const ref::Order order : ref::kOrders) {
      const Tensor in = blocks_tensor(DType::F32, {3, 40, 72}, 5, -1, order);
      expect_normative(spec_of(rate, 8), in, order, 1 + static_cast<int>(order) % 3);
      if (HasFatalFailure()) return;
    }
    for (const std::int64_t cols : {1024, 1032, 2056}) {
      expect_normative(spec_of(rate, 8), blocks_tensor(DType::F32, {16, cols}, 6));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctQuantBits, EveryDTypeAndOddSides) {
  for (const DType dtype : ref::kLossyDTypes) {
    for (const double rate : kRates) {
      if (rate > 5 * static_cast<int>(size_bytes(dtype))) continue;  // edges would make it grow
      for (const auto& [rows, cols] : {std::pair(64, 64), std::pair(17, 250), std::pair(65, 31)}) {
        const int kind = is_whole(dtype) ? static_cast<int>(Kind::Integers) : -1;
        expect_normative(spec_of(rate, 8), blocks_tensor(dtype, {2, rows, cols}, 7, kind));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DctQuantBits, OffsetAndClamp) {
  for (const double rate : kRates) {
    for (const char* more : {", offset=3", ", clamp=zero", ", offset=-1/3, clamp=zero"}) {
      expect_normative(spec_of(rate, 8, more), blocks_tensor(DType::F32, {24, 328}, 8));
      if (HasFatalFailure()) return;
    }
  }
}

// Random bytes seldom have a header that fits, so half of the blocks are given one.
TEST_P(DctQuantBits, AnyBytesUnpackAlike) {
  std::mt19937 random(9);
  for (const double rate : kRates) {
    for (const int dc : {4, 8, 12}) {
      const dct_quant_ref::Rules rules(rate, dc);
      const Shape shape{64, 67 * 8};
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(8 * 67 * rules.bytes));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
      int fitting = 0;
      for (int b = 0; b < 8 * 67; ++b) {
        std::uint8_t* block = bytes.data() + b * rules.bytes;
        const auto step = static_cast<int>(random() % 1024);
        std::vector<int> widths = {rules.bias + static_cast<int>(random() % 16)};
        while (static_cast<int>(widths.size()) < rules.tiles) {
          const int least = std::max(0, widths.back() - 2);
          widths.push_back(least + static_cast<int>(random() % static_cast<unsigned>(widths.back() +
                                                                                     2 - least)));
        }
        if (b % 2 == 0) {
          dct_quant_ref::write_header(rules, {step, widths, true, false}, block);
        } else {
          dct_quant_ref::set_bits(block, 0, 10, static_cast<std::uint64_t>(step));
        }
        fitting += dct_quant_ref::read_header(rules, block).fits;
      }
      EXPECT_GT(fitting, rate < 2 ? 1 : 20) << rate;
      expect_normative_unpack(spec_of(rate, dc), std::as_bytes(std::span(bytes)), DType::F32,
                              shape);
      if (rate <= 8) {
        for (const char* more : {"", ", offset=100", ", offset=-1e30", ", clamp=zero"}) {
          expect_normative_unpack(spec_of(rate, dc, more), std::as_bytes(std::span(bytes)),
                                  DType::U8, shape);
        }
      }
      if (HasFatalFailure()) return;
    }
  }
}

// The tail then has four bits of every tile, and four of the first coefficient where dc asks for them:
// more than fit 64 bits.
TEST_P(DctQuantBits, BlocksWhoseWidthsAreAllOddUnpackAlike) {
  std::mt19937 random(13);
  for (const double rate : {3.0, 4.0, 6.0, 8.0}) {
    for (const int dc : {4, 8, 12}) {
      const dct_quant_ref::Rules rules(rate, dc);
      const Shape shape{8, 35 * 8};
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(35 * rules.bytes));
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
      for (int b = 0; b < 35; b += 1 + b % 3) {
        std::uint8_t* block = bytes.data() + b * rules.bytes;
        // So many bits are left over that each tile has one more.
        const std::vector<int> widths(static_cast<std::size_t>(rules.tiles), rate < 4 ? 1 : 2);
        dct_quant_ref::write_header(rules, {4 * 127, widths, true, false}, block);
        ASSERT_TRUE(dct_quant_ref::read_header(rules, block).fits);
      }
      for (const DType dtype : {DType::U8, DType::F32}) {
        expect_normative_unpack(spec_of(rate, dc), std::as_bytes(std::span(bytes)), dtype, shape);
      }
      if (HasFatalFailure()) return;
    }
  }
}

// Blocks of an image of bytes are unpacked 16 at a time, and stored four side by side where they are.
TEST_P(DctQuantBits, ImagesOfBytesOfAnySides) {
  for (const double rate : {1.0, 2.0, 3.5, 4.0, 4.125, 6.0, 8.0}) {
    for (const Shape& shape :
         {Shape{8, 8}, Shape{7, 8, 8}, Shape{3, 8, 24}, Shape{5, 16, 40}, Shape{3, 32, 32},
          Shape{2, 96, 96}, Shape{1, 8, 120}, Shape{2, 24, 136}, Shape{40, 16, 16}}) {
      const Tensor in = blocks_tensor(DType::U8, shape, 12, static_cast<int>(Kind::Integers));
      expect_normative(spec_of(rate, 8), in);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctQuantBits, NothingBesideTheTensorsIsReadOrWritten) {
  for (const double rate : kRates) {
    for (const std::int64_t cols : {8, 24, 256, 264}) {
      for (const bool at_end : {false, true}) {
        const CodecSpec spec = spec_of(rate, 8);
        const Shape shape{24, cols};
        const std::vector<std::byte> values = blocks_tensor(DType::F32, shape, 10).bytes();
        const Guarded in(values.size(), at_end), out(values.size(), at_end);
        std::copy(values.begin(), values.end(), in.data());
        const std::size_t packed_bytes = layout(spec, DType::F32, shape).max_bytes;
        const Guarded packed(packed_bytes, at_end);
        pack(spec, ConstTensorView(in.data(), DType::F32, shape), {packed.data(), packed_bytes});
        unpack(spec, {packed.data(), packed_bytes}, TensorView(out.data(), DType::F32, shape));
        if (rate > 8) continue;
        const Guarded pixels(values.size() / 4, at_end);
        unpack(spec, {packed.data(), packed_bytes}, TensorView(pixels.data(), DType::U8, shape));
      }
    }
  }
}

// Outputs past kStreamBytes leave by other stores.
TEST_P(DctQuantBits, StreamedOutputsAreTheSame) {
  for (const auto& [rate, cols] : {std::pair(1.0, 512), std::pair(4.0, 520)}) {
    const Shape shape{9, 512, cols};
    ASSERT_GT(static_cast<std::size_t>(shape.elems()) * sizeof(float), kStreamBytes);
    expect_normative(spec_of(rate, 8), blocks_tensor(DType::F32, shape, 11), ref::Order::RowMajor,
                     2);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, DctQuantBits, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tuckfold
