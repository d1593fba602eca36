// Datasets of several files: replaced as a whole, and known by their contents.
#include "container/sharded.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>

#include "container/dataset_fixture.h"
#include "container/resume.h"
#include "container/shard_files.h"
#include "container/shards.h"
#include "container/trailing_data.h"

namespace tuckfold {
namespace {

using ref::Batch;
using ref::code_thrown;
using ref::holds;
using ref::kQuick;
using ref::numbers_to;
using ref::TempFolder;
using ref::write_file;

class Sharded : public testing::Test {
 protected:
  ShardRequest request(int shards) const {
    std::vector<ArrayInfo> arrays = ref::small_arrays();
    check_arrays(arrays);
    return {.path = path,
            .shards = shards,
            .schema = {arrays, "{}"},
            .begun = {.origin = {.samples = 12, .values = 1, .files = 2}, .seed = 3},
            .resumable = true};
  }
  // Samples from that number on, in every shard `each`.
  void write(const ShardedOutput& output, std::int64_t first, std::int64_t each) const {
    for (const std::string& shard : output.paths()) {
      FileWriter writer(shard, ref::small_arrays(), kQuick);
      writer.write(Batch(first, each).views());
      writer.finish();
      first += each;
    }
  }
  void make(int shards, std::int64_t first, std::int64_t each, bool replace = false) const {
    ShardRequest now = request(shards);
    now.replace = replace;
    ShardedOutput output(now);
    write(output, first, each);
    output.finish();
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  const TempFolder folder;
  const std::string path = folder / "d.tuck";
};

TEST_F(Sharded, AppearsAsAWhole) {
  {
    ShardedOutput output(request(2));
    EXPECT_TRUE(output.paths()[1].ends_with("/d-00001-of-00002.tuck"));
    write(output, 0, 6);
    EXPECT_FALSE(std::filesystem::exists(path));
    output.finish();
  }
  EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));
  EXPECT_EQ(files(),
            (std::set<std::string>{"d.tuck", "d-00000-of-00002.tuck", "d-00001-of-00002.tuck"}));
}

TEST_F(Sharded, ReplacesAWholeDataset) {
  make(3, 0, 4);
  EXPECT_EQ(code_thrown([&] { ShardedOutput output(request(2)); }), Errc::InvalidArgument);
  EXPECT_EQ(files().size(), 4u);
  ShardRequest now = request(2);
  now.replace = true;
  {
    ShardedOutput output(now);
    write(output, 0, 5);
    EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));  // the old one
    output.finish();
  }
  EXPECT_TRUE(holds(FileReader(path), numbers_to(10)));
  EXPECT_EQ(files(),
            (std::set<std::string>{"d.tuck", "d-00000-of-00002.tuck", "d-00001-of-00002.tuck"}));
  make(2, 0, 6, true);
  EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));
  EXPECT_TRUE(files().contains("d.2-00000-of-00002.tuck"));
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(Sharded, FilesOfOtherNamesAreNotRemoved) {
  make(2, 0, 6);
  std::filesystem::rename(folder / "d-00000-of-00002.tuck", folder / "mine.tuck");
  const std::vector<std::string> shards = {folder / "mine.tuck", folder / "d-00001-of-00002.tuck"};
  write_manifest(path, shards);
  make(2, 0, 5, true);
  EXPECT_TRUE(files().contains("mine.tuck"));
  EXPECT_FALSE(files().contains("d-00001-of-00002.tuck") &&
               files().contains("d.2-00001-of-00002.tuck"));
}

TEST_F(Sharded, WhatIsResumableStaysAndIsFound) {
  { write(ShardedOutput(request(2)), 0, 6); }
  EXPECT_EQ(find_leftover(path), Leftover::Shards);
  ShardRequest now = request(2);
  EXPECT_EQ(code_thrown([&] { ShardedOutput output(now); }), Errc::InvalidArgument);
  now.resume = true;
  for (const auto& change :
       {+[](ShardRequest& r) { r.shards = 3; }, +[](ShardRequest& r) { r.begun.seed = 4; },
        +[](ShardRequest& r) { r.begun.origin.values = 4; },
        +[](ShardRequest& r) { r.schema.metadata = R"({"a": 1})"; }}) {
    ShardRequest other = now;
    change(other);
    EXPECT_EQ(code_thrown([&] { ShardedOutput output(other); }), Errc::InvalidArgument);
  }
  ShardedOutput(now).finish();
  EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(Sharded, WhatIsNotResumableIsRemoved) {
  ShardRequest now = request(2);
  now.resumable = false;
  { write(ShardedOutput(now), 0, 6); }
  EXPECT_TRUE(files().empty());
}

TEST_F(Sharded, AStateThatIsNotWholeIsNoState) {
  write_file(path + ".partial", "{\"tuckfold_partial\": 1, \"sha");
  EXPECT_EQ(find_leftover(path), Leftover::Useless);
  ShardRequest now = request(2);
  now.resume = true;
  { write(ShardedOutput(now), 0, 6); }
  // A state from elsewhere names no files elsewhere.
  std::ofstream(folder / "victim") << "x";
  std::filesystem::create_directory(folder / "sub");
  const TempFolder other;
  write_file(other / "d.tuck.partial",
             R"({"tuckfold_partial": 1, "shards": ["../victim"], "replaces": [")" +
                 (folder / "victim") +
                 R"("], "resumable": false, "append": false, "samples": "0", "values": "0",
                 "files": "0", "seed": "0", "schema": {}})");
  remove_leftover(other / "d.tuck");
  EXPECT_TRUE(files().contains("victim"));
  // Nor files of its folder that are no shards of its own.
  write_file(folder / "e.tuck.partial",
             R"({"tuckfold_partial": 1, "shards": ["victim"], "replaces": ["victim"],
                 "resumable": false, "append": false, "samples": "0", "values": "0",
                 "files": "0", "seed": "0", "schema": {}})");
  remove_leftover(folder / "e.tuck");
  EXPECT_TRUE(files().contains("victim"));
  EXPECT_FALSE(files().contains("e.tuck.partial"));
}

TEST_F(Sharded, KillsBetweenManifestAndRemovalAreFinished) {
  make(2, 0, 6);
  ShardRequest now = request(3);
  now.replace = true;
  std::string state;
  {
    ShardedOutput output(now);
    write(output, 0, 4);
    state = ref::read_file(path + ".partial");
    output.finish();
  }
  // As if killed then: the state and an old shard are there again.
  write_file(path + ".partial", state);
  write_file(folder / "d-00001-of-00002.tuck", "old");
  now.resume = true;
  ShardedOutput(now).finish();
  EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));
  EXPECT_EQ(files().size(), 4u);
  write_file(path + ".partial", state);
  write_file(folder / "d-00001-of-00002.tuck", "old");
  remove_leftover(path);
  EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));
  EXPECT_EQ(files().size(), 4u);
  // Nothing is left to resume, so that nothing needs to be replaced before more is appended.
  write_file(path + ".partial", state);
  EXPECT_EQ(find_leftover(path), Leftover::Useless);
  ShardRequest more = request(1);
  more.append = true;
  more.resumable = false;
  ShardedOutput output(more);
  write(output, 12, 3);
  output.finish();
  EXPECT_TRUE(holds(FileReader(path), numbers_to(15)));
}

TEST_F(Sharded, OneWriterAtATime) {
  const ShardedOutput output(request(2));
  ShardRequest now = request(2);
  now.replace = now.resume = true;
  EXPECT_EQ(code_thrown([&] { ShardedOutput second(now); }), Errc::Io);
  EXPECT_EQ(code_thrown([&] { remove_leftover(path); }), Errc::Io);
}

TEST_F(Sharded, AppendsFurtherShards) {
  make(2, 0, 6);
  ShardRequest now = request(1);
  now.append = true;
  now.resumable = false;
  ShardedOutput output(now);
  write(output, 12, 3);
  output.finish();
  EXPECT_TRUE(holds(FileReader(path), numbers_to(15)));
  EXPECT_EQ(files().size(), 4u);
}

TEST_F(Sharded, ShardsAreKnownByTheirContents) {
  make(2, 0, 6);
  const std::string one = folder / "d-00000-of-00002.tuck", two = folder / "d-00001-of-00002.tuck";
  const std::string first = ref::read_file(one), second = ref::read_file(two);
  const auto code = [&] { return code_thrown([&] { FileReader reader(path); }); };
  ASSERT_EQ(first.size(), second.size());  // as many samples, equal sizes: only values differ
  write_file(two, first);
  EXPECT_EQ(code(), Errc::CorruptData);
  write_file(two, second.substr(0, second.size() - 1));
  EXPECT_EQ(code(), Errc::CorruptData);
  write_file(two, second + std::string(70, 'x'));
  {
    const FileReader reader(path);
    EXPECT_TRUE(holds(reader, numbers_to(12)));
    ASSERT_EQ(reader.trailing_data().size(), 1u);
    EXPECT_EQ(reader.trailing_data()[0].path, two);
    EXPECT_EQ(reader.trailing_bytes(), 70u);
  }
  EXPECT_EQ(code_thrown([&] { FileReader reader(path, {.strict = true}); }), Errc::CorruptData);
  // What is appended to a shard is not in the dataset.
  write_file(two, second);
  FileWriter writer(two, {}, {.mode = WriteMode::Append, .sync = false});
  writer.write(Batch(12, 2).views());
  writer.finish();
  EXPECT_TRUE(holds(FileReader(path), numbers_to(12)));
}

TEST_F(Sharded, LinksToManifestsAreFollowed) {
  make(2, 0, 6);
  const TempFolder other;
  std::filesystem::create_symlink(path, other / "link.tuck");
  EXPECT_TRUE(holds(FileReader(other / "link.tuck"), numbers_to(12)));
  // A folder of links has links to shards, too, under names of its own.
  for (const char* name : {"d-00000-of-00002.tuck", "d-00001-of-00002.tuck"}) {
    std::filesystem::rename(folder / name, folder / (std::string("blob") + name));
    std::filesystem::create_symlink(folder / (std::string("blob") + name), other / name);
  }
  EXPECT_TRUE(holds(FileReader(other / "link.tuck"), numbers_to(12)));
}

TEST_F(Sharded, MoreShardsThanAreMapped) {
  constexpr int kShards = static_cast<int>(ShardFiles::kMostMapped) + 50;
  make(1, 0, 2);
  const std::string shard = folder / "d-00000-of-00001.tuck";
  std::vector<std::string> shards;
  for (int i = 0; i < kShards; ++i) {
    shards.push_back(folder / std::to_string(i));
    std::filesystem::create_hard_link(shard, shards.back());
  }
  write_manifest(folder / "all.tuck", shards);
  const FileReader reader(folder / "all.tuck");
  EXPECT_EQ(reader.samples(), 2 * kShards);
  std::vector<std::int64_t> numbers;
  for (int i = 0; i < 2 * kShards; ++i) numbers.push_back(i % 2);
  EXPECT_TRUE(holds(reader, numbers));
  const ChunkBytes held = reader.chunk_bytes(0, 0);
  EXPECT_TRUE(std::ranges::equal(held.frame, reader.chunk_bytes(0, 7).frame));
  // One that is replaced meanwhile is an error when it is mapped again.
  std::filesystem::remove(shards[0]);
  write_file(shards[0], "something else");
  bool refused = false;
  for (int i = kShards; i-- > 0;) {
    try {
      reader.chunk_bytes(0, static_cast<std::size_t>(i));
    } catch (const Error& error) {
      refused = error.code() == Errc::CorruptData;
    }
  }
  EXPECT_TRUE(refused);
}

TEST_F(Sharded, AShardThatWasAppendedToByItselfIsNotBroken) {
  make(2, 0, 4);
  const std::string shard = folder / "d-00000-of-00002.tuck", to = folder / "e.tuck";
  {
    FileWriter writer(shard, {}, {.mode = WriteMode::Append, .threads = 1, .sync = false});
    writer.write(Batch(4, 2).views());
    writer.finish();
  }
  const FileReader reader(path);
  EXPECT_TRUE(holds(reader, numbers_to(8)));
  ASSERT_EQ(reader.trailing_data().size(), 1u);
  EXPECT_TRUE(reader.trailing_data()[0].not_listed);
  EXPECT_FALSE(reader.trailing_data()[0].trailer_broken);
  EXPECT_NE(to_string(reader.trailing_data()[0]).find("appended to by itself"), std::string::npos);
  EXPECT_EQ(code_thrown([&] { FileReader strict(path, {.strict = true}); }), Errc::CorruptData);
  const RepairReport report = repair(path, to);
  EXPECT_EQ(report.grown, std::vector<std::string>{shard});
  EXPECT_TRUE(holds(FileReader(to, {.strict = true}), numbers_to(8)));
  EXPECT_EQ(repair(shard, to).samples, 6);
  // The same with an append of the shard that was stopped after that.
  std::string bytes = ref::read_file(shard);
  write_file(shard, bytes + std::string(100, 'x'));
  EXPECT_TRUE(FileReader(path).trailing_data()[0].not_listed);
}

TEST_F(Sharded, RepairTakesManifests) {
  make(3, 0, 4);
  const std::string to = folder / "e.tuck";
  std::string bytes = ref::read_file(folder / "d-00001-of-00003.tuck");
  std::uint64_t index = 0;  // the trailer begins with the offset of its record
  std::memcpy(&index, bytes.data() + bytes.size() - 64, sizeof index);
  bytes[index + 40] ^= 1;
  write_file(folder / "d-00001-of-00003.tuck", bytes);
  EXPECT_EQ(code_thrown([&] { FileReader reader(path); }), Errc::CorruptData);
  RepairReport report = repair(path, to);
  EXPECT_EQ(report.samples, 12);
  EXPECT_FALSE(report.by_index);
  EXPECT_TRUE(report.not_listed.empty());
  EXPECT_TRUE(holds(FileReader(to, {.strict = true}), numbers_to(12)));
  std::filesystem::remove(folder / "d-00001-of-00003.tuck");
  report = repair(path, to);
  EXPECT_EQ(report.samples, 8);
  EXPECT_EQ(report.unreadable.size(), 1u);
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0], (SampleRange{4, 4}));
  EXPECT_TRUE(holds(FileReader(to), {0, 1, 2, 3, 8, 9, 10, 11}));
}

}  // namespace
}  // namespace tuckfold
