// Dataset files where the system refuses: every call that can fail does, once at each place. The
// error is Io, nothing that was there is lost, and no half file has the final name.
#include <gtest/gtest.h>

#include "container/dataset_fixture.h"
#include "container/resume.h"
#include "container/sharded.h"
#include "every_place_fixture.h"
#include "faults.h"
#include "tuckfold/container.h"

namespace tuckfold {
namespace {

using ref::at_every_place;
using ref::Batch;
using ref::code_thrown;
using ref::Fault;
using ref::holds;
using ref::kFaults;
using ref::numbers_to;
using ref::read_file;
using ref::TempFolder;
using ref::write_small;

TEST(Faults, NewFilesAreWholeOrNotThereAndResumeGoesOn) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(folder / "wanted.tuck", 11, 11);
  const std::string wanted = read_file(folder / "wanted.tuck");
  at_every_place([&] { write_small(path, 11, 3, {}); },
                 [&](bool failed) {
                   if (std::filesystem::exists(path)) {  // flushing the folder comes last
                     ASSERT_TRUE(read_file(path) == wanted);
                   } else {
                     ASSERT_TRUE(failed);
                     write_small(path, 11, 4, {.mode = WriteMode::Resume});
                     ASSERT_TRUE(read_file(path) == wanted);
                   }
                   std::filesystem::remove(path);
                 });
}

TEST(Faults, AFileThatIsReplacedStaysUntilTheNewOneIsWhole) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(folder / "wanted.tuck", 11, 11);
  const std::string wanted = read_file(folder / "wanted.tuck");
  write_small(path, 4, 4);
  const std::string before = read_file(path);
  at_every_place([&] { write_small(path, 11, 3, {}); },
                 [&](bool failed) {
                   const std::string now = read_file(path);
                   ASSERT_TRUE(now == wanted || (failed && now == before));
                   ref::write_file(path, before);
                 });
}

TEST(Faults, ResumingMayFailAndBeTriedAgain) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(folder / "wanted.tuck", 11, 11);
  const std::string wanted = read_file(folder / "wanted.tuck");
  const auto stop_within = [&] {
    FileWriter writer(path, ref::small_arrays(), ref::kQuick);
    writer.write(Batch(0, 9).views());
  };
  stop_within();
  at_every_place([&] { write_small(path, 11, 3, {.mode = WriteMode::Resume}); },
                 [&](bool) {
                   if (!std::filesystem::exists(path)) {
                     write_small(path, 11, 2, {.mode = WriteMode::Resume});
                   }
                   ASSERT_TRUE(read_file(path) == wanted);
                   std::filesystem::remove(path);
                   stop_within();
                 });
}

TEST(Faults, AppendsThatFailLeaveTheOldSamples) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 5, 5);
  const std::string before = read_file(path);
  at_every_place(
      [&] {
        FileWriter writer(path, {}, {.mode = WriteMode::Append});
        writer.write(Batch(5, 6).views());
        writer.finish();
      },
      [&](bool failed) {
        const FileReader reader(path);
        ASSERT_TRUE(holds(reader, numbers_to(failed ? 5 : 11)));
        ASSERT_TRUE(read_file(path).starts_with(before));
        ref::write_file(path, before);
      });
}

TEST(Faults, RepairsAndManifestsThatFailLeaveNothing) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 5, 5);
  const std::string from = folder / "a.tuck", to = folder / "b.tuck";
  const std::vector<std::string> shards = {from};
  at_every_place(
      [&] {
        repair(from, to);
        write_manifest(folder / "all.json", shards);
      },
      [&](bool) {
        for (const std::string& path : {to, folder / "all.json"}) {
          ASSERT_TRUE(!std::filesystem::exists(path) || holds(FileReader(path), numbers_to(5)));
          std::filesystem::remove(path);
        }
        ASSERT_TRUE(holds(FileReader(from), numbers_to(5)));
      });
}

TEST(Faults, ADatasetOfShardsIsTheOldOneOrTheNewOne) {
  const TempFolder folder;
  const std::string path = folder / "d.tuck";
  std::vector<ArrayInfo> arrays = ref::small_arrays();
  check_arrays(arrays);
  const auto write = [&](int shards, std::int64_t each) {
    ShardedOutput output(
        {.path = path, .shards = shards, .schema = {arrays, "{}"}, .replace = true});
    std::int64_t first = 0;
    for (const std::string& shard : output.paths()) {
      FileWriter writer(shard, ref::small_arrays());
      writer.write(Batch(first, each).views());
      writer.finish();
      first += each;
    }
    output.finish();
  };
  int failures = 0;
  for (const Fault& fault : kFaults) {
    for (int nth = 1;; ++nth) {
      SCOPED_TRACE(std::string(fault.call) + " " + std::to_string(nth));
      write(3, 4);
      tuckfold_fault(fault.call, nth, fault.error, fault.forever ? 1 : 0);
      const Errc code = code_thrown([&] { write(2, 5); });
      const bool reached = tuckfold_fault_calls() >= nth;
      tuckfold_fault(nullptr, 0, 0, 0);
      const bool threw = code != Errc::Internal;
      ASSERT_TRUE(!threw || code == Errc::Io);
      const FileReader reader(path);
      ASSERT_TRUE(holds(reader, numbers_to(10)) || (threw && holds(reader, numbers_to(12))));
      if (!reached) break;
      failures += threw ? 1 : 0;
    }
  }
  EXPECT_GT(failures, 20);
}

TEST(Faults, ReadersSayWhatTheSystemSaid) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 5, 5);
  for (const char* call : {"open", "fstat", "mmap"}) {
    tuckfold_fault(call, 1, EIO, 0);
    try {
      const FileReader reader(folder / "a.tuck");
      ADD_FAILURE() << call;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::Io);
      EXPECT_NE(std::string(error.what()).find(folder / "a.tuck"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(std::strerror(EIO)), std::string::npos);
    }
    tuckfold_fault(nullptr, 0, 0, 0);
  }
}

TEST(Faults, ShortAndInterruptedCallsGoOn) {
  const TempFolder folder;
  write_small(folder / "wanted.tuck", 11, 11);
  const std::string wanted = read_file(folder / "wanted.tuck");
  tuckfold_fault("short", 5, 0, 0);
  write_small(folder / "a.tuck", 11, 3, {});
  EXPECT_GT(tuckfold_fault_calls(), 100);
  tuckfold_fault(nullptr, 0, 0, 0);
  EXPECT_TRUE(read_file(folder / "a.tuck") == wanted);
  for (const char* call : {"open", "pwrite", "fsync", "ftruncate", "flock"}) {
    for (int nth = 1; nth < 12; ++nth) {
      tuckfold_fault(call, nth, EINTR, 0);
      write_small(folder / "a.tuck", 11, 3, {});
      tuckfold_fault(nullptr, 0, 0, 0);
      ASSERT_TRUE(read_file(folder / "a.tuck") == wanted) << call << " " << nth;
    }
  }
}

}  // namespace
}  // namespace tuckfold
