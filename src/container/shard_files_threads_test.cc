// Shards that are mapped, read and let go on several threads at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "container/dataset_fixture.h"
#include "container/shard_files.h"

namespace tuckfold {
namespace {

TEST(ShardFiles, AnyNumberOfThreadsReads) {
  constexpr int kShards = static_cast<int>(ShardFiles::kMostMapped) + 20;
  const ref::TempFolder folder;
  ref::write_small(folder / "a.tuck", 2, 2);
  std::vector<std::string> shards;
  for (int i = 0; i < kShards; ++i) {
    shards.push_back(folder / std::to_string(i));
    std::filesystem::create_hard_link(folder / "a.tuck", shards.back());
  }
  write_manifest(folder / "all.tuck", shards);
  const FileReader reader(folder / "all.tuck");
  const ChunkBytes held = reader.chunk_bytes(0, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kShards; ++i) {
        const auto chunk = static_cast<std::size_t>((i * 7 + t * 100) % kShards);
        EXPECT_TRUE(std::ranges::equal(reader.chunk_bytes(0, chunk).frame, held.frame));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tuckfold
