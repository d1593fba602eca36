// Training steps of layers on devices: what grows, what fits, and what the answer says.
#include <gtest/gtest.h>

#include <cmath>

#include "tuckfold/devices.h"
#include "tuckfold/error.h"
#include "tuckfold/structured.h"

namespace tuckfold {
namespace {

DeviceInfo device(const std::string& name) {
  return read_device(std::string(TUCKFOLD_SOURCE_DIR) + "/devices/" + name + ".json");
}

LayerQuestion square(const std::string& text, std::int64_t features, std::int64_t samples) {
  return {.text = text, .in = features, .out = features, .samples = samples};
}

// Those that take any size from 64 on.
const char* const kTexts[] = {"dense",
                              "butterfly",
                              "butterfly(tied=true)",
                              "pixelfly(block=32, butterfly=16, rank=16)",
                              "monarch",
                              "block_diagonal",
                              "low_rank",
                              "circulant",
                              "fastfood"};

TEST(LayerFit, EverythingGrowsWithTheProblem) {
  const DeviceInfo ipu = device("ipu-gc200");
  for (const char* text : kTexts) {
    TileCount first, before;
    for (std::int64_t n = 256; n <= 8192; n *= 2) {
      const LayerFit fit = fits(ipu, square(text, n, n));
      ASSERT_TRUE(fit.tiles) << text;
      EXPECT_GT(fit.tiles->bytes(), before.bytes()) << text << ' ' << n;
      before = *fit.tiles;
      if (n == 256) first = before;
    }
    // Another cut of a product may need fewer of one kind for once; not in the long run.
    EXPECT_GE(before.compute_sets, first.compute_sets) << text;
    EXPECT_GT(before.vertices, first.vertices) << text;
    EXPECT_GT(before.edges, first.edges) << text;
  }
}

TEST(LayerFit, AButterflyHasComputeSetsByTheLogarithm) {
  const DeviceInfo ipu = device("ipu-gc200");
  const auto sets = [&](std::int64_t n) {
    return fits(ipu, square("butterfly", n, 50)).tiles->compute_sets;
  };
  EXPECT_EQ(sets(512) - sets(256), sets(1024) - sets(512));
  EXPECT_GT(sets(1024), fits(ipu, square("dense", 1024, 50)).tiles->compute_sets);
}

TEST(LayerFit, ProductsBeyondTheirShareAreDoneInTurns) {
  const DeviceInfo ipu = device("ipu-gc200");
  const auto small = fits(ipu, square("dense", 1024, 1024)).tiles;
  const auto large = fits(ipu, square("dense", 8192, 8192)).tiles;
  EXPECT_GT(large->compute_sets, small->compute_sets);
  EXPECT_LE(large->temporary_bytes, 0.6 * 611000 + 4);
}

TEST(LayerFit, DenseReachesItsLimitBeforeButterflies) {
  const DeviceInfo ipu = device("ipu-gc200");
  const std::int64_t dense = fits(ipu, square("dense", 1024, 50)).largest;
  EXPECT_GE(dense, 4096);
  EXPECT_LE(dense, 8192);  // three copies of the weights are 805 MB of 900
  EXPECT_GE(fits(ipu, square("butterfly", 1024, 50)).largest, 8 * dense);
  for (const char* text : kTexts) {
    const std::int64_t largest = fits(ipu, square(text, 1024, 50)).largest;
    ASSERT_GT(largest, 0) << text;
    ASSERT_LT(largest, LayerFit::kMostFeatures) << text;
    EXPECT_TRUE(fits(ipu, square(text, largest, 50)).fits) << text;
    const LayerFit beyond = fits(ipu, square(text, 2 * largest, 50));
    EXPECT_FALSE(beyond.fits) << text;
    EXPECT_GT(beyond.bytes, 611000) << text;
  }
}

TEST(LayerFit, ATileHoldsItsShareOfTheData) {
  const LayerFit fit = fits(device("ipu-gc200"), square("dense", 1024, 50));
  // Weights, gradients, a momentum; the input, and the gradients of both sides.
  const double elems = 3.0 * (1024 * 1024 + 1024) + 50 * 3 * 1024;
  EXPECT_EQ(fit.tiles->data_bytes, 4 * std::ceil(elems / 1472));
  EXPECT_DOUBLE_EQ(fit.bytes,
                   fit.tiles->data_bytes + fit.tiles->program_bytes + fit.tiles->temporary_bytes);
  EXPECT_NE(fit.why.find("1472 tiles"), std::string::npos) << fit.why;
}

TEST(LayerFit, OtherDevicesCountTheStepAgainstTheirMemory) {
  const LayerQuestion asked = square("dense", 4096, 64);
  const LayerFit fit = fits(device("a30"), asked);
  EXPECT_TRUE(fit.fits);
  EXPECT_FALSE(fit.tiles);
  const StepMemory memory = StructuredLayer("dense", 4096, 4096).step_memory(DType::F32, 64);
  EXPECT_EQ(fit.bytes, static_cast<double>(memory.peak() - memory.workspace));
  EXPECT_FALSE(fits(device("a30"), square("dense", 65536, 64)).fits);
  EXPECT_EQ(fit.largest, 32768);  // 12.9 GB of 24
}

TEST(LayerFit, WhatIsRefused) {
  const DeviceInfo ipu = device("ipu-gc200");
  LayerQuestion asked = square("dense", 64, 0);
  EXPECT_THROW(static_cast<void>(fits(ipu, asked)), Error);
  asked = square("dense", 64, 8);
  asked.states = 9;
  EXPECT_THROW(static_cast<void>(fits(ipu, asked)), Error);
  EXPECT_THROW(static_cast<void>(fits(device("cpu"), square("dense", 64, 8))), Error);
  asked = square("dense", 64, 8);
  asked.dtype = DType::BF16;
  EXPECT_FALSE(fits(ipu, asked).fits);
}

}  // namespace
}  // namespace tuckfold
