// unpack_then on the CPU: against its definition, and what it refuses.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/then/then_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::Channels;
using ref::Tensor;

struct Case {
  Shape shape;
  std::int64_t channels, inner;
};

TEST(UnpackThen, GivesWhatItsDefinitionSays) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const char* text : {"block_quant(bits=4)", "raw", "dct_quant(rate=4)"}) {
      for (const Case& c : {Case{{2, 24, 16, 16}, 24, 256}, Case{{2, 16, 16, 24}, 24, 1},
                            Case{{3, 7, 9, 11}, 7, 99}, Case{{8, 1000}, 1, 1}}) {
        const CodecSpec spec = CodecSpec::parse(text);
        if (!Plan::make_if_fits(spec, dtype, c.shape)) continue;
        Tensor in(dtype, c.shape);
        in.fill(ref::pattern(ref::Pattern::Random, dtype, in.elems()));
        const Plan plan(spec, dtype, c.shape);
        std::vector<std::byte> packed(plan.layout().max_bytes);
        packed.resize(plan.pack(in.view(), packed));
        Tensor unpacked(dtype, c.shape), got(dtype, c.shape);
        plan.unpack(packed, unpacked.view());
        const Channels channels(c.channels);
        Tensor add(dtype, c.shape);
        std::vector<double> some = ref::pattern(ref::Pattern::Ramp, dtype, in.elems());
        for (std::size_t i = 0; i < some.size(); i += 7) some[i] = i % 2 == 0 ? -0.0 : -some[i];
        add.fill(some);
        std::vector<std::byte> packed_add(plan.layout().max_bytes);
        packed_add.resize(plan.pack(add.view(), packed_add));
        Tensor added(dtype, c.shape);
        plan.unpack(packed_add, added.view());
        const Channels other_channels = channels.others();
        for (int way = 0; way < 16; ++way) {
          const bool relu = way % 2 == 1, with_add = way / 4 == 1, with_packed = way / 4 >= 2;
          const bool scaled = way / 4 == 3;
          const std::vector<std::byte> gate =
              way % 4 >= 2 ? ref::gate_of(in.elems()) : std::vector<std::byte>{};
          SCOPED_TRACE(std::string(text) + " of " + std::string(to_string(dtype)));
          Then then = channels.then(c.inner, relu);
          if (with_add) then.add = add.view().data;
          if (with_packed) then.packed_add = packed_add.data();
          if (scaled) {
            then.add_scale = other_channels.scale.data();
            then.add_shift = other_channels.shift.data();
          }
          if (!gate.empty()) then.gate = gate.data();
          unpack_then(plan, packed, got.view(), then);
          const auto expected = ref::then_ref(
              dtype, unpacked.values(), channels, c.inner, relu,
              with_add      ? add.values()
              : scaled      ? ref::then_ref(dtype, added.values(), other_channels, c.inner, false)
              : with_packed ? added.values()
                            : std::vector<double>{},
              gate);
          const std::vector<double> values = got.values();
          ASSERT_EQ(values.size(), expected.size());
          for (std::size_t i = 0; i < values.size(); ++i) {
            if (std::isnan(expected[i])) {
              ASSERT_TRUE(std::isnan(values[i])) << i;
            } else {
              ASSERT_EQ(std::bit_cast<std::uint64_t>(values[i]),
                        std::bit_cast<std::uint64_t>(expected[i]))
                  << i;
            }
          }
        }
      }
    }
  }
}

TEST(UnpackThen, ReluOfNegativeZeroIsZeroAndNanStays) {
  const Plan plan(CodecSpec::parse("raw"), DType::F32, {4});
  const float in[] = {-0.0f, -1.0f, NAN, 2.0f}, one = 1, zero = -0.0f;
  float out[4];
  std::vector<std::byte> packed(16);
  plan.pack({in, DType::F32, {4}}, packed);
  const TensorView view(out, DType::F32, {4});
  unpack_then(plan, packed, view, {.scale = &one, .shift = &zero, .relu = true});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out[0]), 0u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out[1]), 0u);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(out[3], 2.0f);
}

TEST(UnpackThen, RefusesWhatDoesNotFit) {
  const Plan plan(CodecSpec::parse("raw"), DType::F32, {4, 6});
  std::vector<std::byte> packed(96);
  std::vector<float> out(24), numbers(6);
  const TensorView view(out.data(), DType::F32, {4, 6});
  const auto code = [&](const Then& then) {
    return ref::code_of([&] { unpack_then(plan, packed, view, then); });
  };
  const Then good{.scale = numbers.data(), .shift = numbers.data(), .channels = 6};
  EXPECT_NO_THROW(unpack_then(plan, packed, view, good));
  const auto with = [&](auto&& change) {
    Then then = good;
    change(then);
    return code(then);
  };
  EXPECT_EQ(with([](Then& t) { t.channels = 5; }), Errc::InvalidArgument);
  EXPECT_EQ(with([](Then& t) { t.channels = 0; }), Errc::InvalidArgument);
  EXPECT_EQ(with([](Then& t) { t.inner = 3; }), Errc::InvalidArgument);
  EXPECT_EQ(with([](Then& t) { t.inner = -1; }), Errc::InvalidArgument);
  EXPECT_EQ(with([](Then& t) { t.inner = 48; }), Errc::InvalidArgument);
  EXPECT_EQ(with([](Then& t) { t.scale = nullptr; }), Errc::InvalidArgument);
  EXPECT_EQ(with([](Then& t) { t.shift = nullptr; }), Errc::InvalidArgument);
  EXPECT_EQ(with([&](Then& t) { t.add = out.data(), t.packed_add = packed.data(); }),
            Errc::InvalidArgument);
  EXPECT_EQ(with([&](Then& t) { t.add_scale = t.add_shift = t.scale; }), Errc::InvalidArgument);
  EXPECT_EQ(with([&](Then& t) { t.packed_add = packed.data(), t.add_scale = t.scale; }),
            Errc::InvalidArgument);
  const Plan whole(CodecSpec::parse("raw"), DType::I32, {4, 6});
  const TensorView integers(out.data(), DType::I32, {4, 6});
  EXPECT_EQ(ref::code_of([&] { unpack_then(whole, packed, integers, good); }),
            Errc::InvalidArgument);
  packed.resize(95);
  EXPECT_EQ(code(good), Errc::CorruptData);
}

TEST(UnpackThen, EmptyTensorsHaveNothingToNormalize) {
  for (const Shape& shape : {Shape{0, 6}, Shape{4, 0}, Shape{4, 6, 0}}) {
    const Plan plan(CodecSpec::parse("raw"), DType::F32, shape);
    const TensorView view(nullptr, DType::F32, shape);
    EXPECT_NO_THROW(unpack_then(plan, {}, view, {.channels = shape[1], .inner = 0}));
  }
}

}  // namespace
}  // namespace tuckfold
