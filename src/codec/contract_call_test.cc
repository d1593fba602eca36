// What every codec promises about calls: its text, its documentation, its workspace, its refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/registry.h"

namespace tuckfold {
namespace {

using ref::Buffer;
using ref::code_of;
using ref::Pattern;
using ref::Tensor;

class CodecCall : public ::testing::TestWithParam<ref::Group> {
 protected:
  void SetUp() override {
    if (const std::string why = ref::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(CodecCall, PrintsATextThatReadsBack) {
  for (const CodecSpec& spec : GetParam().specs) {
    const std::string text = spec.print();
    EXPECT_EQ(CodecSpec::parse(text), spec) << text;
    EXPECT_EQ(CodecSpec::parse(text).print(), text);
  }
}

TEST_P(CodecCall, SpelledOutDefaultsPrintAlike) {
  for (const CodecSpec& spec : GetParam().specs) {
    std::string text;
    for (const Stage& stage : spec.stages()) {
      text += fmt::format("{}{}(", text.empty() ? "" : "|", stage.codec->name);
      std::string list;
      for (std::size_t i = stage.values.size(); i-- > 0;) {  // backwards: order is free
        const ParamInfo& info = stage.codec->params[i];
        if (info.optional && stage.values[i] == 0) continue;
        list += fmt::format("{}{}={}", list.empty() ? "" : ",", info.name,
                            to_string(info, stage.values[i]));
      }
      text += list + ")";
    }
    EXPECT_EQ(CodecSpec::parse(text).print(), spec.print()) << text;
  }
}

// layout either refuses or stays within the input, for shapes up to the largest; a size that varies
// may pass it.
TEST_P(CodecCall, AFixedLayoutNeverGrowsATensor) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 31;
  const std::vector<Shape> shapes = {{},
                                     {1},
                                     {3},
                                     {8, 8},
                                     {9, 9},
                                     {1, 1, 1, 1},
                                     {7, 5, 3, 2},
                                     {100},
                                     {17, 33},
                                     {64, 4},
                                     {4, 64},
                                     {kLarge, 16},
                                     {kLarge, kLarge},
                                     {std::numeric_limits<std::int64_t>::max()},
                                     {0, kLarge, 5},
                                     {std::int64_t{1} << 59, 8},
                                     {5, -8},
                                     {1, 2, 3, 1, 2, 3, 64, 64}};
  for (const CodecSpec& spec : GetParam().specs) {
    for (const DType dtype : kDTypes) {
      for (const Shape& shape : shapes) {
        if (!ref::suits(spec, dtype, shape)) continue;
        const Layout fit = layout(spec, dtype, shape);
        if (!fit.fixed) continue;
        const auto bytes =
            static_cast<double>(shape.elems()) * static_cast<double>(size_bytes(dtype));
        EXPECT_LE(static_cast<double>(fit.max_bytes), bytes)
            << spec.print() << ' ' << to_string(dtype) << ' ' << to_string(shape);
      }
    }
  }
}

TEST_P(CodecCall, LossyCodecsRefuseWholeNumbersThatMustStayExact) {
  for (const CodecSpec& spec : GetParam().specs) {
    if (ref::exact(spec)) continue;
    for (const DType dtype : kDTypes) {
      if (!must_be_exact(dtype)) continue;
      try {
        layout(spec, dtype, {3, 48, 64});
        FAIL() << spec.print();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::InvalidArgument);
        EXPECT_NE(std::string_view(error.what()).find("use bits"), std::string_view::npos)
            << error.what();
      }
    }
  }
}

TEST_P(CodecCall, EveryPlaceForAWorkspaceGivesTheSameBytes) {
  for (const CodecSpec& spec : GetParam().specs) {
    if (!ref::suits(spec, DType::F32, {3, 48, 64})) continue;
    const Tensor in = ref::input_for(spec, DType::F32, {3, 48, 64}, Pattern::Random);
    const Layout fit = layout(spec, in.dtype(), in.shape());
    Buffer wanted(fit.max_bytes);
    const std::size_t size = pack(spec, in.view(), wanted.span());
    const std::span<const std::byte> bytes = wanted.span().first(size);
    const Tensor back(in.dtype(), in.shape());
    unpack(spec, bytes, back.view());
    for (const std::size_t shift : {0, 1, 4, 63}) {
      const Buffer workspace(fit.workspace_bytes, shift);  // AddressSanitizer guards its end
      const Buffer out(fit.max_bytes);
      ASSERT_EQ(pack(spec, in.view(), out.span(), {.workspace = workspace.span()}), size);
      ASSERT_EQ(ref::first_difference(DType::U8, out.span().first(size), bytes), "")
          << spec.print() << ' ' << shift;
      std::fill_n(workspace.data(), workspace.size(), std::byte{0xff});
      const Tensor again(in.dtype(), in.shape());
      unpack(spec, bytes, again.view(), {.workspace = workspace.span()});
      ASSERT_EQ(again.bytes(), back.bytes()) << spec.print() << ' ' << shift;
    }
  }
}

TEST_P(CodecCall, AWorkspaceOneByteTooSmallIsInvalid) {
  const Tensor in = std::move(Tensor(DType::F32, {3, 48, 64}).fill(Pattern::Random));
  for (const CodecSpec& spec : GetParam().specs) {
    if (!ref::suits(spec, in.dtype(), in.shape())) continue;
    const Layout fit = layout(spec, in.dtype(), in.shape());
    if (fit.workspace_bytes == 0) continue;
    const Buffer workspace(fit.workspace_bytes - 1), out(fit.max_bytes);
    const RunOptions options{.workspace = workspace.span()};
    EXPECT_EQ(code_of([&] { pack(spec, in.view(), out.span(), options); }), Errc::InvalidArgument);
    const Tensor back(in.dtype(), in.shape());
    EXPECT_EQ(code_of([&] { unpack(spec, out.span(), back.view(), options); }),
              Errc::InvalidArgument);
  }
}

TEST_P(CodecCall, ViewsThatCannotBeWalkedAreRefused) {
  for (const CodecSpec& spec : GetParam().specs) {
    const Shape shape{16, 16};
    if (!ref::suits(spec, DType::F32, shape)) continue;
    const Tensor in = ref::input_for(spec, DType::F32, shape, Pattern::Constant);
    auto* data = static_cast<std::byte*>(in.view().data);
    const Buffer bytes(layout(spec, DType::F32, shape).max_bytes);
    const auto errors = [&](const TensorView& view, const RunOptions& options = {}) {
      return std::pair(code_of([&] { pack(spec, view, bytes.span(), options); }),
                       code_of([&] { unpack(spec, bytes.span(), view, options); }));
    };
    constexpr auto kBoth = [](Errc code) { return std::pair(code, code); };
    EXPECT_EQ(errors({nullptr, DType::F32, shape}), kBoth(Errc::InvalidArgument));
    EXPECT_EQ(errors({data + 1, DType::F32, shape}), kBoth(Errc::InvalidArgument));
    EXPECT_EQ(errors({data, DType::F32, shape, Shape{1}}), kBoth(Errc::InvalidArgument));
    if (cuda_devices() == 0) {  // with one, kernels would look for the host's memory on it
      EXPECT_EQ(errors({data, DType::F32, shape, Device::Cuda}), kBoth(Errc::Unsupported));
    }
    EXPECT_EQ(errors({data, DType::F32, shape}, {.threads = -1}), kBoth(Errc::InvalidArgument));
    // An output may not repeat elements, an input may.
    EXPECT_EQ(errors({data, DType::F32, shape, Shape{0, 1}}).second, Errc::InvalidArgument);
    pack(spec, TensorView(data, DType::F32, shape, Shape{0, 1}), bytes.span());
  }
}

TEST_P(CodecCall, OutputsThatShareMemoryWithInputsAreRefused) {
  for (const CodecSpec& spec : GetParam().specs) {
    const Shape shape{16, 16};
    if (!ref::suits(spec, DType::F32, shape)) continue;
    const Tensor in = ref::input_for(spec, DType::F32, shape, Pattern::Constant);
    const std::size_t most = layout(spec, DType::F32, shape).max_bytes, tensor = 16 * 16 * 4;
    const Buffer room(most), all(2 * most + 2 * tensor);
    const std::size_t size = pack(spec, in.view(), room.span());
    std::byte* data = all.span().data();
    const auto errors = [&](std::size_t bytes_at, const TensorView& view) {
      std::memcpy(data + bytes_at, room.span().data(), size);
      return std::pair(code_of([&] { pack(spec, view, all.span().subspan(bytes_at)); }),
                       code_of([&] { unpack(spec, std::span(data + bytes_at, size), view); }));
    };
    constexpr std::pair kBoth(Errc::InvalidArgument, Errc::InvalidArgument);
    const TensorView view(data + tensor, DType::F32, shape);
    EXPECT_EQ(errors(tensor, view), kBoth);
    if (size > 1) {
      EXPECT_EQ(errors(tensor - size + 1, view).second, Errc::InvalidArgument);
    }
    EXPECT_EQ(errors(2 * tensor - 1, view), kBoth);
    std::memcpy(data + 2 * tensor, room.span().data(), size);
    unpack(spec, std::span(data + 2 * tensor, size), view);
    pack(spec, view, all.span().subspan(2 * tensor));
  }
}

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ManyTensors, NeedPlacesOfTheirOwn) {
  const CodecSpec spec = CodecSpec::parse("raw");
  const Buffer memory(256);
  std::byte* data = memory.span().data();
  const TensorView a(data, DType::F32, {8}), b(data + 32, DType::F32, {8});
  const std::span<std::byte> c(data + 64, 32), d(data + 96, 32), inside(data + 40, 32);
  const auto packs = [&](std::vector<ConstTensorView> in, std::vector<std::span<std::byte>> out) {
    std::vector<std::size_t> written(in.size());
    return message_of([&] { pack_many(spec, in, out, written); });
  };
  const auto unpacks = [&](std::vector<std::span<const std::byte>> in,
                           std::vector<TensorView> out) {
    return message_of([&] { unpack_many(spec, in, out); });
  };
  EXPECT_EQ(packs({a, b}, {c, d}), "");
  EXPECT_EQ(packs({a, a}, {c, d}), "");
  EXPECT_EQ(
      packs({a, b}, {c, c}),
      "[pack_many] packed bytes 0 and packed bytes 1 share memory; give each a place of its own");
  EXPECT_EQ(packs({a, b}, {inside, d}),
            "[pack_many] tensor 1 and packed bytes 0 share memory; give each a place of its own");
  EXPECT_EQ(unpacks({c, d}, {a, b}), "");
  EXPECT_EQ(unpacks({c, c}, {a, b}), "");
  EXPECT_EQ(unpacks({c, d}, {a, a}),
            "[unpack_many] tensor 0 and tensor 1 share memory; give each a place of its own");
  EXPECT_EQ(unpacks({c, inside}, {a, b}),
            "[unpack] the output shares memory with the packed bytes; unpack to another place");
}

TEST_P(CodecCall, BoolsAreZeroOrOneBothWays) {
  for (const CodecSpec& spec : GetParam().specs) {
    const Shape shape{16, 24};
    if (!ref::suits(spec, DType::Bool, shape)) continue;
    const Tensor in = ref::input_for(spec, DType::Bool, shape, Pattern::Random);
    const Layout fit = layout(spec, DType::Bool, shape);
    std::vector<std::byte> bytes(fit.max_bytes);
    bytes.resize(pack(spec, in.view(), bytes));
    static_cast<std::uint8_t*>(in.view().data)[37] = 2;
    std::vector<std::byte> again(fit.max_bytes);
    EXPECT_EQ(code_of([&] { pack(spec, in.view(), again); }), Errc::InvalidArgument);
    // Whatever byte is damaged, what comes back is 0 or 1.
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      std::vector<std::byte> damaged = bytes;
      damaged[at] ^= std::byte{0x52};
      const Tensor out(DType::Bool, shape);
      try {
        unpack(spec, damaged, out.view());
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
        continue;
      }
      for (const std::byte byte : out.bytes()) ASSERT_LE(byte, std::byte{1}) << spec.print();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, CodecCall, ::testing::ValuesIn(ref::groups()),
                         [](const auto& group) { return group.param.name; });

TEST(Registry, ListsEveryRowOnce) {
  ASSERT_EQ(list_codecs().size(), codec_rows().size());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < list_codecs().size(); ++i) {
    EXPECT_EQ(list_codecs()[i].name, codec_rows()[i]->info.name);
    EXPECT_TRUE(names.insert(list_codecs()[i].name).second);
  }
}

TEST(Registry, ParametersHaveASummaryAndADefaultInRange) {
  for (const CodecInfo& codec : list_codecs()) {
    EXPECT_FALSE(codec.summary.empty()) << codec.name;
    std::set<std::string_view> names;
    for (const ParamInfo& info : codec.params) {
      EXPECT_FALSE(info.summary.empty()) << codec.name << ' ' << info.name;
      EXPECT_TRUE(names.insert(info.name).second) << codec.name << ' ' << info.name;
      if (info.optional) {
        EXPECT_EQ(info.default_value, 0) << info.name;
        EXPECT_GT(info.min, 0) << info.name;
      } else if (info.words.empty()) {
        EXPECT_LE(info.min, info.default_value) << info.name;
        EXPECT_GE(info.max, info.default_value) << info.name;
      } else {
        EXPECT_LT(static_cast<std::size_t>(info.default_value), info.words.size()) << info.name;
        EXPECT_EQ(std::set(info.words.begin(), info.words.end()).size(), info.words.size());
      }
    }
  }
}

// Ranges are what is accepted: a step past either end is not; where any number goes, twice the end.
TEST(Registry, NumbersOutsideTheirRangeAreRefused) {
  for (const CodecInfo& codec : list_codecs()) {
    for (const ParamInfo& info : codec.params) {
      if (!info.words.empty()) continue;
      const auto beyond = [&](double end) {
        return info.step == 0 ? std::max(1.0, std::abs(end)) : info.step;
      };
      for (const double value : {info.min - beyond(info.min), info.max + beyond(info.max)}) {
        const std::string text = fmt::format("{}({}={})", codec.name, info.name, value);
        EXPECT_EQ(code_of([&] { CodecSpec::parse(text); }), Errc::InvalidArgument) << text;
      }
      if (info.step != 0) {
        const std::string text =
            fmt::format("{}({}={})", codec.name, info.name, info.min + info.step / 2);
        EXPECT_EQ(code_of([&] { CodecSpec::parse(text); }), Errc::InvalidArgument) << text;
      }
    }
  }
}

TEST(Registry, EveryCodecParameterAndWordIsDocumented) {
  std::string text;
  const auto read = [&](const std::filesystem::path& path) {
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is missing";
    text.append(std::istreambuf_iterator<char>(file), {});
  };
  read(TUCKFOLD_SOURCE_DIR "/docs/codecs.md");
  for (const CodecInfo& codec : list_codecs()) {
    const std::string page = fmt::format(TUCKFOLD_SOURCE_DIR "/docs/codecs/{}.md", codec.name);
    if (std::filesystem::exists(page)) read(page);
  }
  const auto mentions = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  for (const CodecInfo& codec : list_codecs()) {
    EXPECT_TRUE(mentions(fmt::format("`{}`", codec.name)) ||
                mentions(fmt::format("`{}(", codec.name)))
        << codec.name;
    for (const ParamInfo& info : codec.params) {
      EXPECT_TRUE(mentions(fmt::format("`{}`", info.name)) ||
                  mentions(fmt::format("`{}=", info.name)))
          << codec.name << ' ' << info.name;
      for (const std::string_view word : info.words) {
        EXPECT_TRUE(mentions(word)) << codec.name << ' ' << info.name << '=' << word;
      }
    }
  }
}

}  // namespace
}  // namespace tuckfold
