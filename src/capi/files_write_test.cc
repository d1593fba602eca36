// Writing files through the C API: the bytes of the C++ one, and the rules of `tuckfold pack`.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "capi/files_fixture.h"

namespace tuckfold::ref {
namespace {

TEST(CFileWriter, AFileHasTheBytesOfTheCxxApi) {
  const TempFolder folder;
  write_all(folder / "c.tuck", quick(), 0, 11);
  ref::write_small(folder / "cxx.tuck", 11, 4);
  EXPECT_EQ(ref::read_file(folder / "c.tuck"), ref::read_file(folder / "cxx.tuck"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck.partial"));
}

TEST(CFileWriter, AFileIsReplacedOnlyByForce) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_all(path, quick(), 0, 5);
  tuckfold_write_options options = quick();
  WriterPtr writer;
  EXPECT_EQ(open_writer(path, options, writer), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_last_error(),
            "[write] '" + path + "' exists; pass force to replace it, or name another file");
  options.force = 1;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK);
  ASSERT_EQ(write(writer.get(), 0, 9), TUCKFOLD_OK);
  EXPECT_TRUE(holds_first(path, 5));  // until the new one is complete
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK);
  EXPECT_TRUE(holds_first(path, 9));
}

TEST(CFileWriter, AStoppedWriterIsResumedOrDiscardedOnPurpose) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  tuckfold_write_options options = quick();
  options.origin = 42;
  WriterPtr writer;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK);
  ASSERT_EQ(write(writer.get(), 0, 30), TUCKFOLD_OK);
  WriterPtr second;
  EXPECT_EQ(open_writer(path, options, second), TUCKFOLD_IO);  // one writer at a time
  writer.reset();
  EXPECT_EQ(open_writer(path, options, writer), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tuckfold_last_error()).find("pass resume to go on with it"),
            std::string::npos);
  options.mode = TUCKFOLD_RESUME;
  options.origin = 43;
  EXPECT_EQ(open_writer(path, options, writer), TUCKFOLD_INVALID_ARGUMENT);  // other inputs
  options.origin = 42;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK) << tuckfold_last_error();
  const std::int64_t kept = samples_of(writer.get());
  EXPECT_EQ(kept, 28);  // where the chunks of all arrays end
  ASSERT_EQ(write(writer.get(), kept, 33 - kept), TUCKFOLD_OK);
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK);
  ref::write_small(folder / "b.tuck", 33, 33);
  EXPECT_EQ(ref::read_file(path), ref::read_file(folder / "b.tuck"));

  // keep = 0: nothing is left.
  options.mode = TUCKFOLD_CREATE;
  ASSERT_EQ(open_writer(folder / "c.tuck", options, writer), TUCKFOLD_OK);
  ASSERT_EQ(write(writer.get(), 0, 30), TUCKFOLD_OK);
  tuckfold_writer_close(writer.release(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck.partial"));
}

TEST(CFileWriter, AnAppendAddsToAFileOrLeavesItAsItWas) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_all(path, quick(), 0, 5);
  const std::string before = ref::read_file(path);
  tuckfold_write_options options = quick();
  options.mode = TUCKFOLD_APPEND;
  WriterPtr writer;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK);
  ASSERT_EQ(write(writer.get(), 5, 20), TUCKFOLD_OK);
  tuckfold_writer_close(writer.release(), 1);
  EXPECT_EQ(ref::read_file(path), before);
  ASSERT_EQ(open_writer(path, options, writer, false), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_EQ(samples_of(writer.get()), 5);
  ASSERT_EQ(write(writer.get(), 5, 3), TUCKFOLD_OK);
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK);
  EXPECT_TRUE(holds_first(path, 8));
}

TEST(CFileWriter, ShardsAreWrittenResumedAppendedAndReplaced) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  tuckfold_write_options options = quick();
  options.shards = 3;
  options.samples = 20;
  WriterPtr writer;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK) << tuckfold_last_error();
  ASSERT_EQ(write(writer.get(), 0, 19), TUCKFOLD_OK);
  EXPECT_EQ(write(writer.get(), 19, 2), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_STREQ(tuckfold_last_error(), "[write] 20 samples were announced, got 21");
  EXPECT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_INVALID_ARGUMENT);
  writer.reset();
  EXPECT_FALSE(std::filesystem::exists(path));

  options.mode = TUCKFOLD_RESUME;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK) << tuckfold_last_error();
  const std::int64_t kept = samples_of(writer.get());
  EXPECT_EQ(kept, 13 + 4);  // two shards of 6 and 7, and a chunk of the third
  ASSERT_EQ(write(writer.get(), kept, 20 - kept), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_EQ(samples_of(writer.get()), 20);
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_TRUE(holds_first(path, 20));
  EXPECT_EQ(ref::read_file(path)[0], '{');

  tuckfold_write_options append = quick();
  append.mode = TUCKFOLD_APPEND;
  ASSERT_EQ(open_writer(path, append, writer, false), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_EQ(samples_of(writer.get()), 20);
  ASSERT_EQ(write(writer.get(), 20, 5), TUCKFOLD_OK);
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_TRUE(holds_first(path, 25));

  tuckfold_write_options one = quick();
  one.force = 1;
  write_all(path, one, 0, 9);
  EXPECT_TRUE(holds_first(path, 9));
  const auto files = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // the old shards are gone
}

TEST(CFileWriter, ShardsOfOtherArraysAreNotAddedToAManifest) {
  const TempFolder folder;
  tuckfold_write_options options = quick();
  options.shards = 2;
  options.samples = 8;
  write_all(folder / "a.tuck", options, 0, 8);
  options = quick();
  options.mode = TUCKFOLD_APPEND;
  std::vector<tuckfold_array> arrays = small_c_arrays();
  arrays.back().dtype = TUCKFOLD_I32;
  tuckfold_writer* writer = nullptr;
  EXPECT_EQ(tuckfold_writer_open((folder / "a.tuck").c_str(), arrays.data(), arrays.size(),
                                 &options, &writer),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_TRUE(holds_first(folder / "a.tuck", 8));
}

TEST(CFileWriter, WritingChecksItsArguments) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  WriterPtr writer;
  const auto refused = [&](auto&& change) {
    std::vector<tuckfold_array> arrays = small_c_arrays();
    tuckfold_write_options options = quick();
    change(arrays, options);
    tuckfold_writer* opened = nullptr;
    const tuckfold_status status =
        tuckfold_writer_open(path.c_str(), arrays.data(), arrays.size(), &options, &opened);
    EXPECT_EQ(opened, nullptr);
    return status == TUCKFOLD_INVALID_ARGUMENT;
  };
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].name = nullptr; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].name = "mask"; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].codec = "dct_chop(keep=9)"; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].dtype = 99; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].rank = -1; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].shape = nullptr; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].check = 3; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays[0].fill_count = 1; }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) {
    static const double half = 0.5;  // no u8
    arrays[1].fill = &half;
    arrays[1].fill_count = 1;
  }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) {
    arrays[0].check = TUCKFOLD_BOUND;
    arrays[0].max_error = NAN;
  }));
  EXPECT_TRUE(refused([](auto& arrays, auto&) { arrays.clear(); }));
  EXPECT_TRUE(refused([](auto&, auto& options) { options.mode = 3; }));
  EXPECT_TRUE(refused([](auto&, auto& options) { options.threads = -1; }));
  EXPECT_TRUE(refused([](auto&, auto& options) { options.metadata = "[]"; }));
  EXPECT_TRUE(refused([](auto&, auto& options) { options.struct_bytes = 1; }));
  EXPECT_TRUE(refused([](auto&, auto& options) { options.shards = 2; }));  // of how many samples?
  EXPECT_TRUE(refused([](auto&, auto& options) { options.shards = -1; }));
  EXPECT_TRUE(refused([](auto&, auto& options) { options.samples = -1; }));
  const auto files = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 0);

  ASSERT_EQ(open_writer(path, quick(), writer), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_EQ(tuckfold_writer_write(writer.get(), nullptr, 3), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_writer_write(writer.get(), nullptr, 0), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_writer_write(nullptr, nullptr, 0), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(write(writer.get(), 0, 4), TUCKFOLD_OK);  // a wrong batch changes nothing
  EXPECT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK);
  EXPECT_TRUE(holds_first(path, 4));
  EXPECT_EQ(write(writer.get(), 4, 4), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_INVALID_ARGUMENT);
}

TEST(CFileWriter, ABoundIsHeldAndFillValuesComeBack) {
  const TempFolder folder;
  const std::int64_t sample[] = {8, 8}, batch[] = {6, 8, 8};
  const double fill[] = {-999};
  tuckfold_array array = {.name = "field",
                          .codec = "dct_quant(rate=6)",
                          .dtype = TUCKFOLD_F32,
                          .rank = 2,
                          .shape = sample,
                          .samples_per_chunk = 2,
                          .fill = fill,
                          .fill_count = 1,
                          .check = TUCKFOLD_BOUND,
                          .max_error = 0.25};
  std::vector<float> values(6 * 64), out(values.size());
  std::mt19937 random(1);
  for (std::size_t i = 0; i < values.size(); ++i) {  // samples 2 and 3 are noise
    values[i] = i / 128 == 1 ? static_cast<float>(random() % 1000) : static_cast<float>(i % 8);
  }
  values[7] = -999;
  const tuckfold_tensor in = {
      .data = values.data(), .dtype = TUCKFOLD_F32, .rank = 3, .shape = batch};
  const tuckfold_write_options options = quick();
  tuckfold_writer* opened = nullptr;
  ASSERT_EQ(tuckfold_writer_open((folder / "a.tuck").c_str(), &array, 1, &options, &opened),
            TUCKFOLD_OK)
      << tuckfold_last_error();
  const WriterPtr writer(opened);
  ASSERT_EQ(tuckfold_writer_write(opened, &in, 1), TUCKFOLD_OK) << tuckfold_last_error();
  ASSERT_EQ(tuckfold_writer_finish(opened), TUCKFOLD_OK);
  const std::string text = tuckfold_writer_json(opened);
  const Json json = Json::parse(text);
  const Json& written = json.find("arrays")->items.at(0);
  EXPECT_EQ(written.find("measured")->whole(), 6);
  EXPECT_EQ(written.find("past_bound")->whole(), 2);
  EXPECT_EQ(written.find("filled")->whole(), 1);
  const ReaderPtr reader = open_reader(folder / "a.tuck");
  const tuckfold_tensor to = {.data = out.data(), .dtype = TUCKFOLD_F32, .rank = 3, .shape = batch};
  ASSERT_EQ(tuckfold_reader_read(reader.get(), 0, 0, 6, &to, 0), TUCKFOLD_OK);
  EXPECT_EQ(out[7], -999);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_LE(std::abs(values[i] - out[i]), 0.25F);
}

}  // namespace
}  // namespace tuckfold::ref
