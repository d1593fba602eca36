// Codecs as graphs: operations are the paper's, operators are as few as can be, and what cannot be
// written says why. That graphs compute the right thing is tested in tests/python/portable.
#include "portable/codec_graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "portable/count.h"
#include "portable/operators.h"
#include "tuckfold/error.h"
#include "tuckfold/portable.h"

namespace tuckfold::portable {
namespace {

std::string refusal(const char* spec, DType dtype, const Shape& shape, bool packs = true) {
  try {
    packs ? pack_graph(CodecSpec::parse(spec), dtype, shape)
          : unpack_graph(CodecSpec::parse(spec), dtype, shape);
  } catch (const Error& error) {
    return fmt::format("{}: {}", exit_code(error.code()), error.what());
  }
  return "accepted";
}

std::string operators(const Graph& graph, Target target = Target::Torch) {
  return fmt::format("{}", fmt::join(operators_of(graph, target), " "));
}

TEST(CodecGraph, OperationsAreEquationsFiveAndSeven) {
  for (int keep = 1; keep <= 8; ++keep) {
    for (const int s : {1, 2, 4}) {
      const CodecSpec spec =
          CodecSpec::parse(fmt::format("dct_chop(keep={}, serialize={})", keep, s));
      const Shape shape{5, 3, 64, 96};
      const Flops one = flops(spec, 64, 96);
      EXPECT_EQ(count(pack_graph(spec, DType::F32, shape)).flops, 15 * one.pack);
      EXPECT_EQ(count(unpack_graph(spec, DType::F32, shape)).flops, 15 * one.unpack);
      EXPECT_EQ(count(pack_graph(spec, DType::F32, shape)).products, 2 * s * s);
    }
  }
}

TEST(CodecGraph, ASquareIsTwoProductsAndNothingElse) {
  for (const char* spec : {"dct_chop(keep=4)", "dct_chop(block=16, keep=3)",
                           "dct_chop(block=4, keep=2, transform=zfp)"}) {
    for (const Shape& shape : {Shape{100, 3, 64, 64}, Shape{2, 50, 61}, Shape{16, 16}}) {
      EXPECT_EQ(operators(pack_graph(CodecSpec::parse(spec), DType::F32, shape)), "matmul") << spec;
      EXPECT_EQ(operators(unpack_graph(CodecSpec::parse(spec), DType::F32, shape)), "matmul")
          << spec;
    }
  }
}

// Where a target's file has more operators than the graph says, they are named, too.
TEST(CodecGraph, OperatorsAreThoseOfTheFile) {
  const auto of = [](const char* text, const Shape& shape, Target target) {
    const CodecSpec spec = CodecSpec::parse(text);
    return operators(pack_graph(spec, DType::F32, shape), target) + " / " +
           operators(unpack_graph(spec, DType::F32, shape), target);
  };
  const Shape small{2, 64, 64}, large{2, 512, 512}, odd{2, 509, 512};
  EXPECT_EQ(of("dct_chop(keep=4, shape=triangle)", small, Target::Poptorch),
            "matmul reshape permute expand gather / reshape fill expand scatter permute matmul");
  EXPECT_EQ(of("dct_chop(keep=4, shape=triangle)", small, Target::Onnx),
            "matmul reshape permute gather / reshape fill expand scatter permute matmul");
  EXPECT_EQ(of("dct_chop(keep=4)", large, Target::Torch), "matmul / matmul");
  EXPECT_EQ(of("dct_chop(keep=4)", large, Target::Onnx), "mul reshape matmul / mul reshape matmul");
  EXPECT_EQ(of("dct_chop(keep=4)", odd, Target::Onnx),
            "mul reshape cat matmul / mul reshape cat matmul");
  EXPECT_EQ(of("dct_chop(keep=4, serialize=2)", large, Target::Onnx),
            "slice matmul cat / slice matmul cat");
  EXPECT_NE(of("block_quant(bits=8)", small, Target::Torch).find(" greater where "),
            std::string::npos);
}

TEST(CodecGraph, EveryOperatorIsListed) {
  const auto all = all_operators();
  for (const char* text : {"dct_chop(keep=3, shape=triangle, serialize=2, coef=f16)",
                           "dct_chop(keep=3) | block_quant(bits=8)", "dct_quant(rate=4)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const Graph graph = unpack_graph(spec, DType::F16, {2, 48, 64});
    for (const Target target : {Target::Torch, Target::Onnx}) {
      for (const std::string_view name : operators_of(graph, target)) {
        EXPECT_NE(std::find(all.begin(), all.end(), name), all.end()) << name;
      }
    }
  }
}

TEST(CodecGraph, TilesHaveMatricesOfTheirOwnSize) {
  const Shape shape{1, 512, 512};
  const Count whole = count(pack_graph(CodecSpec::parse("dct_chop(keep=4)"), DType::F32, shape));
  const Count tiles =
      count(pack_graph(CodecSpec::parse("dct_chop(keep=4, serialize=4)"), DType::F32, shape));
  EXPECT_EQ(tiles.constant_bytes * 16, whole.constant_bytes);
  EXPECT_EQ(tiles.matrix_bytes * 16, whole.matrix_bytes);
  EXPECT_EQ(
      operators(pack_graph(CodecSpec::parse("dct_chop(keep=4, serialize=4)"), DType::F32, shape)),
      "slice matmul cat");
}

TEST(CodecGraph, OutputsHaveTheShapeOfTheLayout) {
  for (const char* text :
       {"dct_chop(keep=3)", "dct_chop(keep=5, shape=triangle)", "dct_chop(keep=2, order=planes)",
        "dct_chop(keep=3, shape=triangle, order=planes, coef=f16)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    for (const Shape& shape : {Shape{2, 3, 40, 56}, Shape{33, 9}, Shape{2, 64, 4, 5}}) {
      const Layout fit = layout(spec, DType::F32, shape);
      const Graph pack = pack_graph(spec, DType::F32, shape),
                  unpack = unpack_graph(spec, DType::F32, shape);
      EXPECT_EQ(pack[pack.outputs()[0]].shape, fit.shape) << text;
      EXPECT_EQ(pack[pack.outputs()[0]].dtype, fit.dtype) << text;
      EXPECT_EQ(unpack[unpack.inputs()[0]].shape, fit.shape) << text;
      EXPECT_EQ(unpack[unpack.outputs()[0]].shape, shape) << text;
    }
  }
}

TEST(CodecGraph, WhatCannotBeWrittenSaysWhichStageAndWhy) {
  const Shape shape{4, 64, 64};
  EXPECT_EQ(refusal("bounded(abs=0.1)", DType::F32, shape),
            "4: [portable] bounded cannot be written in plain operators: its size depends on the "
            "values, and accelerators fix all sizes when they compile");
  EXPECT_EQ(refusal("block_quant(bits=4)", DType::F32, shape),
            "4: [portable] block_quant cannot be written in plain operators: codes of 4 bits share "
            "bytes, which "
            "takes shifts of bits, and no accelerator here has them; use bits=8");
  for (const char* spec : {"zstd", "zfp(rate=4)", "mask", "bytes_of(scale=1/255)", "raw"}) {
    EXPECT_EQ(refusal(spec, DType::F32, shape).substr(0, 14), "4: [portable] ") << spec;
  }
  EXPECT_NE(refusal("dct_chop(keep=4) | zstd", DType::F32, shape).find("zstd cannot"),
            std::string::npos);
  EXPECT_NE(
      refusal("dct_chop(keep=4) | dct_chop(keep=4)", DType::F32, shape).find("of chains only"),
      std::string::npos);
  EXPECT_NE(refusal("dct_quant(rate=4)", DType::F32, shape).find("--only unpack"),
            std::string::npos);
  EXPECT_EQ(refusal("dct_quant(rate=4)", DType::F32, shape, false), "accepted");
  EXPECT_NE(refusal("block_quant(bits=8, round=stochastic)", DType::F32, shape).find("stochastic"),
            std::string::npos);
  EXPECT_EQ(refusal("block_quant(bits=8, round=stochastic)", DType::F32, shape, false), "accepted");
}

// A codec is written, or refused with a reason of its own; none falls through.
TEST(CodecGraph, EveryCodecIsWrittenOrHasAReason) {
  const std::map<std::string_view, const char*> needed = {
      {"bounded", "(abs=0.1)"}, {"zfp", "(rate=8)"}, {"pool_index", "(width=128)"}};
  for (const CodecInfo& codec : list_codecs()) {
    std::string spec(codec.name);
    if (const auto more = needed.find(codec.name); more != needed.end()) spec += more->second;
    const std::string said = refusal(spec.c_str(), DType::F32, {4, 64, 64}, false);
    EXPECT_FALSE(said.starts_with("2:")) << "give what it needs: " << said;
    const bool written =
        codec.name == "dct_chop" || codec.name == "block_quant" || codec.name == "dct_quant";
    EXPECT_EQ(said == "accepted", written) << said;
    EXPECT_EQ(said.find("no such form"), said.npos)
        << "give a reason in kReasons for " << codec.name;
  }
}

TEST(CodecGraph, TensorsThatDoNotFitAreInvalid) {
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::U8, {4, 64, 64}),
            "2: [portable] the dtype must be f32, f16 or bf16, got u8; convert before packing");
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::F32, {4, 0, 64}),
            "2: [portable] the shape 4x0x64 has no values");
  EXPECT_EQ(refusal("dct_chop(keep=4, serialize=3)", DType::F32, {4, 64, 64}),
            "2: [layout] serialize=3 must divide the 8 x 8 blocks of 4x64x64; use 1, 2, 4, 8");
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::F32, {5}).substr(0, 2), "2:");
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::F32, {std::int64_t{1} << 30, 64, 64}).substr(0, 40),
            "2: [portable] a tensor must have at most");
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::F32, {1, 64, 32768}),
            "2: [portable] a tile's sides must be at most 16384, got 32768; use serialize=2");
  // Remedies work, and where none does it says so.
  const auto of = [](const char* spec, std::int64_t rows, std::int64_t cols) {
    return refusal(spec, DType::F32, {1, rows, cols});
  };
  EXPECT_EQ(of("dct_chop(keep=4)", 8 * 3, 8 * 6000),
            "2: [portable] a tile's sides must be at most 16384, got 48000; use serialize=3");
  EXPECT_EQ(of("dct_chop(keep=4, serialize=3)", 8 * 3, 8 * 6000), "accepted");
  EXPECT_EQ(of("dct_chop(keep=4, order=planes)", 64, 32768),
            "2: [portable] a tile's sides must be at most 16384, got 32768; use order=rows and "
            "serialize=2");
  EXPECT_EQ(of("dct_chop(keep=4)", 64, 8 * 2053),
            "2: [portable] a tile's sides must be at most 16384, got 16424; no serialize cuts 8 x "
            "2053 blocks so small: cut the planes into smaller ones");
  EXPECT_EQ(refusal("dct_chop(keep=8)", DType::F16, {4, 64, 64}).substr(0, 2), "2:");  // would grow
}

// The same text for the same codec, whatever was exported before.
TEST(Targets, FilesFollowFromTheCodec) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=3, shape=triangle)");
  const Shape shape{2, 32, 32};
  const auto exported = [&] {
    return Export{spec, DType::F32, shape, pack_graph(spec, DType::F32, shape),
                  unpack_graph(spec, DType::F32, shape)};
  };
  const Export a = exported(), b = exported();
  for (const Target target :
       {Target::Torch, Target::Poptorch, Target::Samba, Target::Cerebras, Target::Groq}) {
    EXPECT_EQ(torch_file(a, target), torch_file(b, target));
  }
  EXPECT_EQ(onnx_model(a, *a.pack, 13), onnx_model(b, *b.pack, 13));
}

// The largest `serialize` is thousands of operators; writing them takes no time to speak of.
TEST(Targets, ManyTilesAreWritten) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=2, serialize=64)");
  const Shape shape{1, 512, 512};
  const Export codec{spec, DType::F32, shape, pack_graph(spec, DType::F32, shape), {}};
  EXPECT_EQ(count(*codec.pack).products, 2 * 64 * 64);
  EXPECT_GT(torch_file(codec, Target::Torch).size(), 100'000u);
}

// However many tiles there are: what slices begin and end with is stored once.
TEST(Targets, ModelsStayBelowOneMegabyte) {
  for (const std::int64_t side : {512, 509, 2048, 4096}) {
    for (int s = 1; s <= 64; s *= 2) {
      if (side == 4096 && s == 1) continue;  // 2.1 MB, as docs/portable.md says
      for (const char* shape : {"square", "triangle"}) {
        const CodecSpec spec = CodecSpec::parse(
            fmt::format("dct_chop(keep={}, shape={}, serialize={})", s == 64 ? 7 : 4, shape, s));
        const Shape tensor{1, side, side};
        const Export codec{spec, DType::F32, tensor, pack_graph(spec, DType::F32, tensor),
                           unpack_graph(spec, DType::F32, tensor)};
        EXPECT_LT(onnx_model(codec, *codec.pack, 13).size(), 1'000'000u) << spec.print() << side;
        EXPECT_LT(onnx_model(codec, *codec.unpack, 13).size(), 1'000'000u) << spec.print() << side;
      }
    }
  }
}

// What is said without a graph is never more than what the graph takes, and with tiles not much less.
TEST(CodecGraph, TheLeastCountIsABound) {
  const std::vector<Shape> shapes = {{4, 3, 64, 64}, {2, 128, 96},  {509, 261},
                                     {3, 40, 8, 16}, {5, 16, 4, 4}, {7, 61, 61}};
  int compared = 0;
  for (const char* more : {"", ", serialize=2", ", serialize=4", ", shape=triangle",
                           ", order=planes", ", coef=f16", ", shape=triangle, serialize=2",
                           ", coef=bf16, serialize=2", ", block=4", ", block=16, serialize=2"}) {
    for (const char* after : {"", " | block_quant(bits=8)"}) {
      for (const Shape& shape : shapes) {
        for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
          for (const bool packs : {true, false}) {
            const CodecSpec spec =
                CodecSpec::parse("dct_chop(keep=3" + std::string(more) + ")" + after);
            Count real;
            try {
              real =
                  count(packs ? pack_graph(spec, dtype, shape) : unpack_graph(spec, dtype, shape));
            } catch (const Error&) {
              continue;  // such as blocks that the tiles do not divide
            }
            const Count least = least_count(spec, dtype, shape, packs);
            EXPECT_LE(least.peak_bytes, real.peak_bytes) << spec.print() << to_string(shape);
            EXPECT_LE(least.matrix_bytes, real.matrix_bytes) << spec.print() << to_string(shape);
            EXPECT_LE(least.matrix_side, real.matrix_side) << spec.print() << to_string(shape);
            EXPECT_GT(least.matrix_side, 0);
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 300);
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4, serialize=16)");
  const Shape large{4, 2048, 2048};
  for (const bool packs : {true, false}) {
    const Count real =
        count(packs ? pack_graph(spec, DType::F32, large) : unpack_graph(spec, DType::F32, large));
    const Count least = least_count(spec, DType::F32, large, packs);
    EXPECT_GT(static_cast<double>(least.peak_bytes), 0.98 * static_cast<double>(real.peak_bytes));
  }
  const Count none =
      least_count(CodecSpec::parse("block_quant(bits=8)"), DType::F32, {4, 64, 64}, true);
  EXPECT_EQ(none.peak_bytes, 0);
}

}  // namespace
}  // namespace tuckfold::portable
