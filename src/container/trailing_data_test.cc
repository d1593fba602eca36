// A stopped append and a damaged trailer look alike but for a few bytes: no one is taken for the
// other.
#include "container/trailing_data.h"

#include <gtest/gtest.h>

#include "container/dataset_fixture.h"

namespace tuckfold {
namespace {

using ref::Batch;
using ref::read_file;
using ref::TempFolder;
using ref::write_file;
using ref::write_small;

// A file, and the same after an append.
struct Files {
  TempFolder folder;
  std::string path = folder / "a.tuck", before, after;

  Files() {
    write_small(path, 5, 5);
    before = read_file(path);
    FileWriter writer(path, {}, {.mode = WriteMode::Append, .threads = 1, .sync = false});
    writer.write(Batch(5, 6).views());
    writer.finish();
    after = read_file(path);
  }
};

TEST(TrailingData, WholeFilesHaveNothingThere) {
  const Files files;
  EXPECT_TRUE(FileReader(files.path, {.strict = true}).trailing_data().empty());
  EXPECT_FALSE(has_broken_schema(files.path));
}

TEST(TrailingData, NoPartOfAnAppendLooksLikeABrokenTrailer) {
  const Files files;
  for (std::size_t size = files.before.size() + 1; size < files.after.size(); ++size) {
    write_file(files.path, files.after.substr(0, size));
    const VerifyReport report = verify(files.path, 1);
    ASSERT_EQ(report.trailing_data.size(), 1u);
    ASSERT_EQ(report.trailing_data[0].path, files.path);
    ASSERT_EQ(report.trailing_data[0].bytes, size - files.before.size());
    ASSERT_FALSE(report.trailing_data[0].trailer_broken) << size;
    ASSERT_THROW(FileReader(files.path, {.strict = true}), Error);
    ASSERT_TRUE(report.broken.empty()) << size;
  }
  // A file may have grown without its last bytes.
  write_file(files.path, files.after.substr(0, files.after.size() - 64) + std::string(64, '\0'));
  EXPECT_FALSE(verify(files.path, 1).trailing_data.at(0).trailer_broken);
}

TEST(TrailingData, AnyBitOfTheLastTrailerThatFlipsIsSeenAndRepaired) {
  const Files files;
  const std::string to = files.folder / "b.tuck";
  for (std::size_t at = files.after.size() - 64; at < files.after.size(); ++at) {
    std::string broken = files.after;
    broken[at] = static_cast<char>(broken[at] ^ (1 << at % 8));
    write_file(files.path, broken);
    const VerifyReport report = verify(files.path, 1);
    ASSERT_TRUE(report.trailing_data.at(0).trailer_broken) << at;
    ASSERT_EQ(report.samples, 5) << at;
    const RepairReport repaired = repair(files.path, to);
    ASSERT_EQ(repaired.samples, 11) << at;
    ASSERT_FALSE(repaired.by_index) << at;
    ASSERT_TRUE(verify(to, 1).trailing_data.empty()) << at;
  }
}

TEST(TrailingData, WholeChunksOfAnAppendThatWasCutAreRepaired) {
  const Files files;
  const std::string to = files.folder / "b.tuck";
  std::int64_t last = 5;
  for (std::size_t size = files.before.size(); size <= files.after.size(); size += 16) {
    write_file(files.path, files.after.substr(0, size));
    const std::int64_t samples = repair(files.path, to).samples;
    ASSERT_GE(samples, last) << size;
    ASSERT_TRUE(ref::holds(FileReader(to, {.strict = true}), ref::numbers_to(samples))) << size;
    last = samples;
  }
  EXPECT_EQ(last, 11);
}

TEST(TrailingData, ABrokenSchemaAtTheStartIsSeenAndRepaired) {
  const Files files;
  const std::string to = files.folder / "b.tuck";
  for (const std::size_t at : {64, 80, 100, 200}) {
    std::string broken = files.after;
    broken[at] = static_cast<char>(broken[at] ^ 1);
    write_file(files.path, broken);
    const VerifyReport report = verify(files.path, 1);
    ASSERT_TRUE(report.schema_broken) << at;
    ASSERT_EQ(report.samples, 11) << at;
    repair(files.path, to);
    ASSERT_FALSE(verify(to, 1).schema_broken) << at;
  }
}

}  // namespace
}  // namespace tuckfold
