// Dataset files on several threads: writers that pack chunks side by side, readers at once, files
// rewritten.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "container/dataset_fixture.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

using ref::Batch;
using ref::kQuick;
using ref::read_file;
using ref::TempFolder;
using ref::write_small;

TEST(ContainerThreads, BytesDependNeitherOnThreadsNorOnBatches) {
  const TempFolder folder;
  write_small(folder / "wanted.tuck", 23, 23, {.threads = 1});
  const std::string wanted = read_file(folder / "wanted.tuck");
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t batch : {1, 2, 3, 4, 7, 16, 23}) {
      WriteOptions options = kQuick;
      options.threads = threads;
      write_small(folder / "b.tuck", 23, batch, options);
      ASSERT_TRUE(read_file(folder / "b.tuck") == wanted) << threads << " threads, " << batch;
    }
  }
}

// Samples of a batch: copied to the buffer, or, every second time, in place.
FileWriter::Fetch fetch_from(const Batch& batch) {
  return [&batch](std::size_t array, std::int64_t first, std::int64_t samples, std::byte* room) {
    const ConstTensorView view = batch.views()[array];
    const std::int64_t each = view.strides[0] * static_cast<std::int64_t>(size_bytes(view.dtype));
    const std::byte* from = static_cast<const std::byte*>(view.data) + first * each;
    if (first % 2 != 0) return from;
    std::memcpy(room, from, static_cast<std::size_t>(samples * each));
    return static_cast<const std::byte*>(room);
  };
}

TEST(ContainerThreads, FetchedSamplesAreTheSameBytes) {
  const TempFolder folder;
  write_small(folder / "wanted.tuck", 23, 23, {.threads = 1});
  const std::string wanted = read_file(folder / "wanted.tuck");
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t batch : {1, 3, 4, 7, 16, 23}) {
      WriteOptions options = kQuick;
      options.threads = threads;
      FileWriter writer(folder / "b.tuck", ref::small_arrays(), options);
      for (std::int64_t at = 0; at < 23; at += batch) {
        const Batch some(at, std::min<std::int64_t>(batch, 23 - at));
        // By turns, fetched and given.
        if (at / batch % 3 == 2) {
          writer.write(some.views());
        } else {
          writer.write(some.count(), fetch_from(some));
        }
      }
      writer.finish();
      ASSERT_TRUE(read_file(folder / "b.tuck") == wanted) << threads << " threads, " << batch;
    }
  }
}

TEST(ContainerThreads, ManyThreadsReadAtOnce) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 200, 200);
  const FileReader reader(folder / "a.tuck");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int run = 0; run < 500; ++run) {
        const auto sample = static_cast<std::int64_t>(random() % 200);
        std::int64_t label = -1;
        reader.read_one(2, sample, TensorView(&label, DType::I64, {}));
        std::vector<float> plane(64);
        reader.read_one(0, sample, TensorView(plane.data(), DType::F32, {8, 8}));
        if (label != sample * 1000003 || plane != ref::plane_read(sample)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ContainerThreads, RewritingWithAnotherCodecGivesTheBytesOfAWriter) {
  const TempFolder folder;
  std::vector<ArrayInfo> raw = ref::small_arrays();
  for (ArrayInfo& info : raw) info.codec = CodecSpec::parse("raw");
  FileWriter writer(folder / "raw.tuck", raw, ref::kQuick);
  writer.write(ref::Batch(0, 11).views());
  writer.finish();
  ref::write_small(folder / "wanted.tuck", 11, 11);
  std::vector<FileReader> files;
  files.emplace_back(folder / "raw.tuck");
  std::vector<RewriteArray> arrays;
  for (const ArrayInfo& info : ref::small_arrays()) {
    arrays.push_back({.from = arrays.size(), .info = info});
  }
  for (const int threads : {1, 3}) {
    Rewrite(files, arrays).write(folder / "made.tuck", {.threads = threads, .sync = false});
    EXPECT_EQ(ref::read_file(folder / "made.tuck"), ref::read_file(folder / "wanted.tuck"));
  }
}

TEST(ContainerThreads, PackedSamplesAreGatheredByManyAtOnce) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 200, 50);
  const FileReader reader(folder / "a.tuck");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int turn = 0; turn < 10; ++turn) {
        std::vector<std::int64_t> samples(150);
        for (std::int64_t& sample : samples) sample = random() % 200;
        std::vector<std::byte> room(reader.gather_packed(0, samples, {}, 3).bytes);
        const PackedBatch batch = reader.gather_packed(0, samples, room, 3);
        std::vector<float> got(150 * 64), wanted(150 * 64);
        unpack(batch.parts.front().codec, room, TensorView(got.data(), DType::F32, {150, 8, 8}));
        reader.gather(0, samples, TensorView(wanted.data(), DType::F32, {150, 8, 8}), 2);
        wrong += batch.parts.size() == 1 && got == wanted ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tuckfold
