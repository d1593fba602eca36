// What fits() says would fit: the fewest changes, and each of them works.
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>

#include "tuckfold/devices.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

DeviceInfo device(const std::string& name) {
  return read_device(std::string(TUCKFOLD_SOURCE_DIR) + "/devices/" + name + ".json");
}

std::string remedy(const char* name, const char* spec, DType dtype, const Shape& shape,
                   Direction direction = Direction::Both) {
  return fits(device(name), CodecSpec::parse(spec), dtype, shape, direction).remedy;
}

// A chip with these operators and nothing that is too large for it.
DeviceInfo with_operators(const std::string& names, const std::string& target) {
  const std::string at = R"("source": "me", "at": "page 1")";
  return parse_device(R"({"name": "toy", "title": "A toy", "kind": "none", "target": ")" + target +
                          R"(", "software": "none", "sources": {"me": "a guess"}, "numbers": {},
  "dtypes": {"names": ["f32", "f16"], )" +
                          at + R"(}, "operators": [{"names": [)" + names + "], " + at + "}]}",
                      "toy.json");
}

TEST(Remedies, OneChangeIsTheSmallest) {
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {100, 3, 512, 512}), "use serialize=2");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 2048, 2048}), "use serialize=8");
  // 75 x 75 and 55 x 55 blocks: no even number divides them.
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 600, 600}), "use serialize=3");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 440, 440}), "use serialize=5");
  // 53 x 53 tiles of 8 x 8 would fit, too.
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 8 * 53, 8 * 53}),
            "use serialize=2 with sides padded to 432 x 432");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F16, {100, 3, 64, 64}), "use --dtype f32");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4, order=planes)", DType::F32, {4, 3, 64, 64}),
            "use order=rows");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4)", DType::F32, {1001, 3, 64, 64}),
            "use a batch of 1000 at most");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4, shape=triangle)", DType::F32, {10, 3, 64, 64}),
            "use shape=square");
  EXPECT_EQ(remedy("cs2", "dct_chop(keep=4, coef=bf16)", DType::F32, {10, 3, 64, 64}),
            "use coef=f32");
  EXPECT_EQ(
      remedy("groqchip", "dct_chop(keep=4) | block_quant(bits=8)", DType::F32, {4, 3, 64, 64}),
      "use --only unpack");
}

TEST(Remedies, TwoAndThreeCausesAreRemediedTogether) {
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4)", DType::F32, {100, 3, 512, 512}),
            "use serialize=2 and a batch of 32 at most");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4, shape=triangle)", DType::F32, {100, 3, 512, 512}),
            "use shape=square and serialize=2");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F16, {100, 3, 512, 512}),
            "use --dtype f32 and serialize=2");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4, order=planes)", DType::F32, {4, 3, 512, 512}),
            "use order=rows and serialize=2");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4, coef=f16)", DType::F16, {4, 3, 64, 64}),
            "use coef=f32 and --dtype f32");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4, shape=triangle)", DType::F16, {4, 3, 512, 512}),
            "use shape=square, --dtype f32 and serialize=2");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4, shape=triangle)", DType::F32, {1001, 3, 64, 64}),
            "use shape=square and a batch of 1000 at most");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4, shape=triangle)", DType::BF16, {99, 3, 512, 512}),
            "use shape=square, --dtype f32, serialize=2 and a batch of 32 at most");
}

// Where no number of tiles divides the blocks, the sides can be padded; what is said then fits.
TEST(Remedies, SidesArePaddedToWholeTiles) {
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 8 * 67, 8 * 67}),
            "use serialize=2 with sides padded to 544 x 544");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4)", DType::F32, {4, 3, 492, 656}),
            "use serialize=3 with sides padded to 504 x 672");
  EXPECT_TRUE(fits(device("groqchip"), CodecSpec::parse("dct_chop(keep=4, serialize=3)"),
                   DType::F32, {4, 3, 504, 672}, Direction::Both)
                  .fits);
  EXPECT_NE(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 9, 1200, 1500}), "");
  // Folded axes have no side that could be padded.
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 8 * 67, 134, 4}), "");
}

TEST(Remedies, WhereNothingHelpsThereIsNone) {
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4) | block_quant(bits=8)", DType::F32, {4, 3, 64, 64}),
            "");
  // And it is found out in little time, though many combinations of many tiles are tried.
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4, shape=triangle, order=planes, coef=f16)", DType::F16,
                   {4, 8 * 67, 134, 4}),
            "");
  EXPECT_EQ(remedy("sn30", "block_quant(bits=8)", DType::F16, {100, 3, 2048, 2048}), "");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 20);
}

// Of hundreds of tilings none helps, and few of their graphs are made: a second of this thread's time
// is plenty, also where the tensor is near the limit.
TEST(Remedies, ThatNothingHelpsIsFoundFast) {
  for (const std::int64_t rows : {2048, 2400, 2800, 3072, 3500, 4096}) {
    for (const DType dtype : {DType::BF16, DType::F16}) {
      const std::clock_t start = std::clock();
      const std::string said =
          remedy("ipu-gc200", "dct_chop(keep=5)", dtype, {1000, 9, rows, 5000});
      const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      if (rows == 4096) {
        EXPECT_EQ(said, "");
      }
      EXPECT_LT(took, 5) << rows << ' ' << to_string(dtype) << ": " << said;
    }
  }
}

// A smaller type would save memory; it would lose values, too.
TEST(Remedies, ATensorThatIsTooLargeKeepsItsType) {
  for (const std::int64_t side : {256, 300}) {
    const std::string said =
        remedy("groqchip", "dct_chop(keep=4)", DType::F32, {300, 3, side, side});
    EXPECT_EQ(said.find("dtype"), said.npos) << said;
    EXPECT_EQ(said.substr(0, 14), "use a batch of") << said;
  }
}

// A batch's remedy is the largest that fits: one more does not.
TEST(Remedies, TheBatchIsTheLargest) {
  const DeviceInfo groq = device("groqchip");
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=7)");
  const std::string said = fits(groq, spec, DType::F32, {900, 3, 256, 256}, Direction::Both).remedy;
  const auto batch = std::stoll(said.substr(std::string("use a batch of ").size()));
  EXPECT_TRUE(fits(groq, spec, DType::F32, {batch, 3, 256, 256}, Direction::Both).fits) << said;
  EXPECT_FALSE(fits(groq, spec, DType::F32, {batch + 1, 3, 256, 256}, Direction::Both).fits)
      << said;
}

// Operators of the file for the device's target are what counts.
TEST(Remedies, OperatorsThatTilesOrMatricesNeed) {
  const auto said = [](const DeviceInfo& toy, const char* spec, std::int64_t side) {
    const Fit fit = fits(toy, CodecSpec::parse(spec), DType::F32, {2, side, side}, Direction::Both);
    return fit.fits ? "fits" : fit.why.substr(0, fit.why.find(',')) + "; " + fit.remedy;
  };
  const DeviceInfo torch = with_operators(R"("matmul")", "torch");
  EXPECT_EQ(said(torch, "dct_chop(keep=4)", 512), "fits");
  EXPECT_EQ(said(torch, "dct_chop(keep=4, serialize=2)", 512),
            "packing needs the operator slice; use serialize=1");
  const DeviceInfo onnx = with_operators(R"("matmul")", "onnx");
  EXPECT_EQ(said(onnx, "dct_chop(keep=4)", 256), "fits");
  EXPECT_EQ(said(onnx, "dct_chop(keep=4)", 512), "packing needs the operator mul; ");
  const DeviceInfo tiles = with_operators(R"("matmul", "slice", "cat")", "onnx");
  EXPECT_EQ(said(tiles, "dct_chop(keep=4)", 512),
            "packing needs the operator mul; use serialize=2");
  const DeviceInfo builds = with_operators(R"("matmul", "mul", "reshape")", "onnx");
  EXPECT_EQ(said(builds, "dct_chop(keep=4)", 512), "fits");
  EXPECT_EQ(said(builds, "dct_chop(keep=4)", 509), "packing needs the operator cat; ");
  // The triangle needs zeros to scatter to, and an index for each value.
  const DeviceInfo sparse =
      with_operators(R"("matmul", "reshape", "permute", "gather", "scatter")", "torch");
  EXPECT_EQ(said(sparse, "dct_chop(keep=4, shape=triangle)", 64),
            "packing needs the operator expand; use shape=square");
  const DeviceInfo no_zeros =
      with_operators(R"("matmul", "reshape", "permute", "gather", "scatter", "expand")", "torch");
  EXPECT_EQ(said(no_zeros, "dct_chop(keep=4, shape=triangle)", 64),
            "unpacking needs the operator fill; use shape=square");
}

}  // namespace
}  // namespace tuckfold
