// zstd's chunks are shared by threads, and each thread keeps a context from call to call.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "codec/zstd/zstd_fixture.h"

namespace tuckfold {
namespace {

using ref::kZstdChunk;
using ref::noise;
using ref::packed;
using ref::residuals;
using ref::unpacked;

TEST(ZstdThreads, ShareChunksAndDoNotChangeTheBytes) {
  const std::size_t count = 5 * kZstdChunk + 3;
  std::vector<std::uint8_t> values = residuals(count);
  const std::vector<std::uint8_t> random = noise(kZstdChunk);
  std::copy(random.begin(), random.end(), values.begin() + 2 * kZstdChunk);  // one chunk is stored
  const std::vector<std::byte> wanted = packed("zstd(level=-3)", values, 1);
  for (const int threads : {2, 3, 16, 40}) {
    EXPECT_EQ(packed("zstd(level=-3)", values, threads), wanted);
    EXPECT_EQ(unpacked("zstd(level=-3)", wanted, count, threads), values);
  }
}

// Threads keep contexts from call to call; what went through one before must not show.
TEST(ZstdThreads, BytesDoNotDependOnWhatAThreadPackedBefore) {
  struct Task {
    std::string text;
    std::vector<std::uint8_t> values;
    std::vector<std::byte> bytes;  // by a thread that has packed nothing
  };
  std::vector<Task> tasks;
  for (const int level : {-5, -1, 0, 1, 2, 3, 5, 9, 19}) {
    for (const std::size_t count : {1, 700, 5000, 16385, 140000, 300001}) {
      for (const bool random : {false, true}) {
        tasks.push_back({.text = "zstd(level=" + std::to_string(level) + ")",
                         .values = random ? noise(count) : residuals(count),
                         .bytes = {}});
      }
    }
  }
  for (Task& task : tasks) {
    std::thread([&] { task.bytes = packed(task.text, task.values, 1); }).join();
  }
  std::mt19937 random(6);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(tasks.begin(), tasks.end(), random);
    for (const Task& task : tasks) {
      ASSERT_EQ(packed(task.text, task.values, 1), task.bytes) << task.text;
      ASSERT_EQ(unpacked(task.text, task.bytes, task.values.size(), 1), task.values) << task.text;
    }
  }
}

}  // namespace
}  // namespace tuckfold
