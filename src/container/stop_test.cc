// Writers that are stopped: a file that was there stays whole, and resuming gives the bytes of a
// writer that was not disturbed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "container/dataset_fixture.h"
#include "container/format.h"
#include "tuckfold/container.h"

namespace tuckfold {
namespace {

using ref::Batch;
using ref::code_thrown;
using ref::holds;
using ref::kQuick;
using ref::numbers_to;
using ref::read_file;
using ref::TempFolder;
using ref::write_file;
using ref::write_small;

WriteOptions quick(WriteMode mode) {
  WriteOptions options = kQuick;
  options.mode = mode;
  return options;
}

TEST(Stopped, ResumingFromAnyPrefixGivesTheSameBytes) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 14, 14);
  const std::string whole = read_file(path);
  std::string partial = whole;  // as a writer has it before it writes the trailer
  put_begun(std::as_writable_bytes(std::span(partial)), {.seed = kQuick.seed});
  for (std::size_t size = 0; size <= whole.size(); size += size % 64 < 56 ? 19 : 5) {
    std::filesystem::remove(path);
    write_file(path + ".partial", partial.substr(0, size));
    write_small(path, 14, 5, quick(WriteMode::Resume));
    ASSERT_TRUE(read_file(path) == whole) << size;
  }
}

TEST(Stopped, ResumingKeepsWhatEveryArrayHas) {
  const TempFolder folder;
  {
    FileWriter writer(folder / "a.tuck", ref::small_arrays(), kQuick);
    writer.write(Batch(0, 11).views());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a.tuck"));
  // Chunks of 2, 4 and 4: all meet at 8, though planes are there up to 10.
  FileWriter writer(folder / "a.tuck", ref::small_arrays(), quick(WriteMode::Resume));
  EXPECT_EQ(writer.samples(), 8);
  writer.write(Batch(8, 4).views());
  writer.finish();
  EXPECT_TRUE(holds(FileReader(folder / "a.tuck"), numbers_to(12)));
}

TEST(Stopped, ResumingNeedsTheSameSchema) {
  const TempFolder folder;
  { const FileWriter writer(folder / "a.tuck", ref::small_arrays(), kQuick); }
  std::vector<ArrayInfo> other = ref::small_arrays();
  other[0].codec = CodecSpec::parse("raw");
  EXPECT_EQ(code_thrown([&] { FileWriter(folder / "a.tuck", other, quick(WriteMode::Resume)); }),
            Errc::InvalidArgument);
  write_small(folder / "a.tuck", 3, 3, quick(WriteMode::Resume));
  EXPECT_TRUE(holds(FileReader(folder / "a.tuck"), numbers_to(3)));
}

TEST(Stopped, ResumingNamesWhatDiffers) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  WriteOptions options = kQuick;
  options.seed = 3;
  options.origin = {.samples = 100, .first = 10, .values = 5, .files = 6};
  {
    FileWriter writer(path, ref::small_arrays(), options);
    writer.write(Batch(0, 8).views());
  }
  options.mode = WriteMode::Resume;
  const auto refusal = [&](const WriteOptions& now, std::vector<ArrayInfo> arrays) -> std::string {
    try {
      FileWriter(path, std::move(arrays), now);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      return error.what();
    }
    return "";
  };
  const auto with = [&](auto change) {
    WriteOptions now = options;
    change(now);
    return refusal(now, ref::small_arrays());
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(has(with([](auto& now) { now.origin.samples = 99; }), "100 samples then, 99 now"));
  EXPECT_TRUE(has(with([](auto& now) { now.origin.first = 0; }), "shards"));
  EXPECT_TRUE(has(with([](auto& now) { now.origin.values = 1; }), "the values of the inputs"));
  EXPECT_TRUE(has(with([](auto& now) { now.origin.files = 1; }), "input file"));
  EXPECT_TRUE(has(with([](auto& now) { now.checks = {{.max_error = 0.1}}; }), "max_error"));
  EXPECT_TRUE(has(with([](auto& now) { now.seed = 4; }), "the seed: 3 then, 4 now"));
  EXPECT_TRUE(has(with([](auto& now) { now.metadata = R"({"a": 1})"; }), "the metadata"));
  std::vector<ArrayInfo> arrays = ref::small_arrays();
  arrays[0].codec = CodecSpec::parse("raw");
  EXPECT_TRUE(has(refusal(options, arrays), "the codec of"));
  arrays = ref::small_arrays();
  arrays.pop_back();
  EXPECT_TRUE(has(refusal(options, arrays), "the arrays"));
  EXPECT_EQ(FileWriter(path, ref::small_arrays(), options).samples(), 8);
}

TEST(Stopped, AFileWithItsTrailerAndNotItsNameIsWrittenAgain) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 14, 14);
  const std::string whole = read_file(path);
  std::filesystem::rename(path, path + ".partial");
  FileWriter writer(path, ref::small_arrays(), quick(WriteMode::Resume));
  EXPECT_EQ(writer.samples(), 0);
}

TEST(Stopped, UnfinishedFilesSayWhatToDo) {
  const TempFolder folder;
  {
    FileWriter writer(folder / "a.tuck", ref::small_arrays(), kQuick);
    writer.write(Batch(0, 9).views());
  }
  try {
    const FileReader reader(folder / "a.tuck.partial");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::CorruptData);
    EXPECT_NE(std::string(error.what()).find("resume"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("repair"), std::string::npos);
  }
  const RepairReport report = repair(folder / "a.tuck.partial", folder / "b.tuck");
  EXPECT_FALSE(report.by_index);
  EXPECT_EQ(report.samples, 8);
  EXPECT_TRUE(holds(FileReader(folder / "b.tuck"), numbers_to(8)));
}

TEST(Appended, SamplesComeBehindThoseThatAreThere) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 5, 5);
  for (const std::int64_t count : {1, 4, 6}) {
    FileWriter writer(path, count == 4 ? ref::small_arrays() : std::vector<ArrayInfo>{},
                      quick(WriteMode::Append));
    const std::int64_t first = writer.samples();
    writer.write(Batch(first, count).views());
    writer.finish();
    ASSERT_TRUE(holds(FileReader(path), numbers_to(first + count)));
  }
  // A writer that is finished does not hold the file.
  FileWriter finished(path, {}, quick(WriteMode::Append));
  finished.finish();
  FileWriter(path, {}, quick(WriteMode::Append)).finish();

  std::vector<ArrayInfo> other = ref::small_arrays();
  other[1].dtype = DType::F32;
  EXPECT_EQ(code_thrown([&] { FileWriter(path, other, quick(WriteMode::Append)); }),
            Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { FileWriter(folder / "no", {}, quick(WriteMode::Append)); }),
            Errc::Io);
  EXPECT_TRUE(holds(FileReader(path), numbers_to(16)));
}

TEST(Appended, AppendsThatAreNotFinishedLeaveTheFileAsItWas) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 5, 5);
  const std::string before = read_file(path);
  {
    FileWriter writer(path, {}, quick(WriteMode::Append));
    writer.write(Batch(5, 20).views());
  }
  EXPECT_TRUE(read_file(path) == before);
}

TEST(Appended, AnyPartOfAnAppendLeavesTheOldSamples) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 5, 5);
  const std::string before = read_file(path);
  {
    FileWriter writer(path, {}, quick(WriteMode::Append));
    writer.write(Batch(5, 6).views());
    writer.finish();
  }
  const std::string after = read_file(path);
  ASSERT_TRUE(after.starts_with(before));
  for (std::size_t size = before.size(); size < after.size(); size += 7) {
    write_file(path, after.substr(0, size));
    {
      const FileReader reader(path);
      ASSERT_EQ(reader.trailing_bytes(), size - before.size());
      ASSERT_TRUE(holds(reader, numbers_to(5))) << size;
    }
    FileWriter writer(path, {}, quick(WriteMode::Append));  // drops the trailing bytes
    ASSERT_EQ(writer.samples(), 5);
    writer.write(Batch(5, 6).views());
    writer.finish();
    ASSERT_TRUE(read_file(path) == after) << size;
  }
}

// ---- kill -9 ------------------------------------------------------------------------------------

// Runs `work` in a child that is killed after a while; says whether it was.
bool killed_while(auto&& work, unsigned microseconds) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ::usleep(microseconds);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

constexpr int kKills = 200;
constexpr std::int64_t kSamples = 400;

TEST(Killed, WritersThatResumeGiveTheSameBytes) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(folder / "wanted.tuck", kSamples, kSamples);
  const std::string wanted = read_file(folder / "wanted.tuck");
  std::mt19937 random(11);
  std::uniform_int_distribution<unsigned> delay(0, 6000);
  int killed = 0, runs = 0;
  while (killed < kKills && runs < 20 * kKills) {
    ++runs;
    const bool was_killed = killed_while(
        [&] { write_small(path, kSamples, 3, quick(WriteMode::Resume)); }, delay(random));
    killed += was_killed ? 1 : 0;
    // Under its name the file is whole, or not there.
    if (std::filesystem::exists(path)) {
      ASSERT_TRUE(read_file(path) == wanted);
      std::filesystem::remove(path);
      continue;
    }
    if (random() % 4 == 0) {  // else the next child goes on with what this one left
      write_small(path, kSamples, 7, quick(WriteMode::Resume));
      ASSERT_TRUE(read_file(path) == wanted);
      std::filesystem::remove(path);
    }
  }
  EXPECT_GE(killed, kKills / 2) << "children were too quick to be killed";
}

TEST(Killed, AppendsLeaveTheOldFileWholeOrTheNewOne) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(folder / "wanted.tuck", 9, 9);
  const std::string before = read_file(folder / "wanted.tuck");
  std::mt19937 random(12);
  std::uniform_int_distribution<unsigned> delay(0, 8000);
  int killed = 0;
  for (int run = 0; run < kKills; ++run) {
    write_file(path, before);
    killed += killed_while(
        [&] {
          FileWriter writer(path, {}, quick(WriteMode::Append));
          while (writer.samples() < kSamples) writer.write(Batch(writer.samples(), 1).views());
          writer.finish();
        },
        delay(random));
    const FileReader reader(path);
    ASSERT_TRUE(reader.samples() == 9 || reader.samples() == kSamples) << reader.samples();
    ASSERT_TRUE(holds(reader, numbers_to(reader.samples())));
    ASSERT_TRUE(read_file(path).starts_with(before));
  }
  EXPECT_GT(killed, 0);
}

}  // namespace
}  // namespace tuckfold
