// What damage does to a file: with any byte changed, or cut at any length, a reader gives an error
// or the right samples. The files are those of tests/formats/, which also hold the format still:
// writing them again gives the same bytes. TUCKFOLD_REGENERATE=1 in the environment writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/crc32c.h"
#include "container/dataset_fixture.h"
#include "container/format.h"
#include "container/frame.h"
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

std::string golden(const std::string& name) { return TUCKFOLD_SOURCE_DIR "/tests/formats/" + name; }

void write_once(const std::string& path) {
  WriteOptions options = kQuick;
  options.metadata = R"({"split": "train"})";
  write_small(path, 7, 3, options);
}

void write_twice(const std::string& path) {
  write_once(path);
  WriteOptions options = kQuick;
  options.mode = WriteMode::Append;
  options.metadata = R"({"split": "all"})";
  FileWriter writer(path, {}, options);
  writer.write(Batch(7, 3).views());
  writer.finish();
}

struct Golden {
  const char* name;
  void (*write)(const std::string& path);
  std::int64_t samples, samples_before;  // now, and before it was appended to
};
std::ostream& operator<<(std::ostream& out, const Golden& file) { return out << file.name; }
constexpr Golden kGolden[] = {{"once.tuck", write_once, 7, 0}, {"twice.tuck", write_twice, 10, 7}};

class Damage : public ::testing::TestWithParam<Golden> {
 protected:
  // Whether a reader of these bytes refuses them, or gives the right samples.
  void expect_error_or_truth(const std::string& bytes, const std::string& what) {
    write_file(path_, bytes);
    try {
      const FileReader reader(path_);
      const Golden& wanted = GetParam();
      ASSERT_TRUE(reader.samples() == wanted.samples ||
                  (wanted.samples_before > 0 && reader.samples() == wanted.samples_before))
          << what;
      // Without the newer samples there are trailing bytes, unless it was cut off exactly.
      ASSERT_TRUE(reader.samples() == wanted.samples || reader.trailing_bytes() > 0 ||
                  bytes.size() < whole_.size())
          << what;
      ASSERT_TRUE(holds(reader, numbers_to(reader.samples()))) << what;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Errc::CorruptData || error.code() == Errc::Unsupported)
          << what << ": " << error.what();
    }
  }

  // A repair of these bytes is refused, or leaves a whole file of right samples.
  void expect_repair(const std::string& bytes, const std::string& what) {
    write_file(path_, bytes);
    RepairReport report;
    try {
      report = repair(path_, folder_ / "repaired.tuck");
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Errc::CorruptData || error.code() == Errc::Unsupported)
          << what << ": " << error.what();
      return;
    }
    std::int64_t total = report.samples;
    for (const SampleRange& range : report.dropped) total += range.samples;
    std::vector<std::int64_t> numbers = numbers_to(total);
    for (auto range = report.dropped.rbegin(); range != report.dropped.rend(); ++range) {
      numbers.erase(numbers.begin() + range->first,
                    numbers.begin() + range->first + range->samples);
    }
    ASSERT_TRUE(holds(FileReader(folder_ / "repaired.tuck"), numbers)) << what;
    ASSERT_TRUE(verify(folder_ / "repaired.tuck").broken.empty()) << what;
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "damaged.tuck";
  const std::string whole_ = read_file(golden(GetParam().name));
};

TEST_P(Damage, WritingGoldenFilesAgainGivesTheirBytes) {
  if (std::getenv("TUCKFOLD_REGENERATE") != nullptr) {
    GetParam().write(golden(GetParam().name));
    GTEST_SKIP() << "written: " << golden(GetParam().name);
  }
  GetParam().write(path_);
  EXPECT_TRUE(read_file(path_) == whole_);
  EXPECT_TRUE(holds(FileReader(golden(GetParam().name)), numbers_to(GetParam().samples)));
}

TEST_P(Damage, AnyByteThatChangesIsAnErrorOrDoesNotMatter) {
  for (std::size_t i = 0; i < whole_.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole_;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      expect_error_or_truth(bytes, "byte " + std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Damage, CutAtAnyLengthIsAnErrorOrWhatWasThereBefore) {
  for (std::size_t size = 0; size < whole_.size(); ++size) {
    expect_error_or_truth(whole_.substr(0, size), "length " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Damage, RepairKeepsRightSamplesWhateverByteChanges) {
  for (std::size_t i = 0; i < whole_.size(); i += 3) {
    std::string bytes = whole_;
    bytes[i] = static_cast<char>(~bytes[i]);
    expect_repair(bytes, "byte " + std::to_string(i));
    if (HasFatalFailure()) return;
  }
  for (std::size_t size = 0; size < whole_.size(); size += 16) {
    expect_repair(whole_.substr(0, size), "length " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Damage, ::testing::ValuesIn(kGolden),
                         [](const auto& golden_file) {
                           return std::string(golden_file.param.name).substr(0, 4) == "once"
                                      ? "Once"
                                      : "Twice";
                         });

// Lines such as "0001c0: 546b5263 …  what it means" of the format's page.
TEST(Formats, TheExampleOfThePageIsTheGoldenFile) {
  const std::string bytes = read_file(golden("once.tuck"));
  std::ifstream page(TUCKFOLD_SOURCE_DIR "/docs/format.md");
  int lines = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.size() < 43 || line.find(": ") != 6) continue;
    std::size_t at = std::stoul(line.substr(0, 6), nullptr, 16);
    for (std::size_t word = 0; word < 4; ++word) {
      for (std::size_t i = 0; i < 4; ++i, ++at) {
        const unsigned long byte = std::stoul(line.substr(8 + 9 * word + 2 * i, 2), nullptr, 16);
        ASSERT_EQ(byte, static_cast<unsigned char>(bytes.at(at))) << line;
      }
    }
    ++lines;
  }
  EXPECT_GT(lines, 20);
}

TEST(DamageReport, VerifyAndRepairTellWhatTheyDidAndCanBeStopped) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 300, 300);
  std::uint64_t frames = 0;
  const FileReader reader(folder / "a.tuck");
  for (std::size_t array = 0; array < reader.arrays().size(); ++array) {
    for (const ChunkInfo& chunk : reader.chunks(array)) frames += chunk.frame_bytes;
  }
  for (const int threads : {1, 3}) {
    std::uint64_t reported = 0;
    verify(folder / "a.tuck", threads, [&](std::uint64_t bytes) { reported += bytes; });
    EXPECT_EQ(reported, frames);
    EXPECT_EQ(code_thrown([&] {
                verify(folder / "a.tuck", threads,
                       [](std::uint64_t) { throw Error(Errc::Io, "stopped"); });
              }),
              Errc::Io);
  }
  std::uint64_t reported = 0;
  repair(folder / "a.tuck", folder / "b.tuck", [&](std::uint64_t bytes) { reported += bytes; });
  EXPECT_GE(reported, 2 * frames);  // heads of chunks count, too
  reported = 0;
  EXPECT_EQ(code_thrown([&] {
              repair(folder / "a.tuck", folder / "c.tuck", [&](std::uint64_t bytes) {
                reported += bytes;
                if (reported > frames * 3 / 2) throw Error(Errc::Io, "stopped");
              });
            }),
            Errc::Io);
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck.partial"));
}

TEST(DamageReport, VerifyNamesTheChunkAndRepairDropsItsSamplesFromAllArrays) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 12, 12);
  std::string bytes = read_file(folder / "a.tuck");
  {
    const FileReader reader(folder / "a.tuck");
    const ChunkBytes chunk = reader.chunk_bytes(0, 2);  // planes 4 and 5
    const std::span<const std::byte> frame = chunk.frame;
    const std::string text(reinterpret_cast<const char*>(frame.data()), frame.size());
    bytes[bytes.find(text) + text.size() - 1] ^= 1;
  }
  write_file(folder / "a.tuck", bytes);
  const VerifyReport report = verify(folder / "a.tuck");
  EXPECT_EQ(report.samples, 12);
  ASSERT_EQ(report.broken.size(), 1u);
  EXPECT_EQ(report.broken[0].array, "plane");
  EXPECT_EQ(report.broken[0].range, (SampleRange{4, 2}));
  EXPECT_NE(report.broken[0].reason.find("checksum"), std::string::npos);

  // Other samples of the broken file are still read.
  std::vector<float> plane(64);
  const FileReader reader(folder / "a.tuck");
  reader.read_one(0, 6, TensorView(plane.data(), DType::F32, {8, 8}));
  EXPECT_EQ(plane, ref::plane_read(6));
  EXPECT_EQ(code_thrown([&] {
              reader.read_one(0, 4, TensorView(plane.data(), DType::F32, {8, 8}));
            }),
            Errc::CorruptData);

  const RepairReport repaired = repair(folder / "a.tuck", folder / "b.tuck");
  EXPECT_TRUE(repaired.by_index);
  EXPECT_EQ(repaired.samples, 10);
  EXPECT_EQ(repaired.dropped, (std::vector{SampleRange{4, 2}}));
  const std::vector<std::int64_t> left = {0, 1, 2, 3, 6, 7, 8, 9, 10, 11};
  EXPECT_TRUE(holds(FileReader(folder / "b.tuck"), left));
  // Masks 6 and 7 are what is left of a chunk of four.
  EXPECT_EQ(FileReader(folder / "b.tuck").chunks(1)[1].skip, 2);

  // A repaired file is a file like others: it can be appended to, lose its index and be repaired.
  WriteOptions options = kQuick;
  options.mode = WriteMode::Append;
  FileWriter writer(folder / "b.tuck", {}, options);
  EXPECT_EQ(writer.samples(), 10);
  writer.write(Batch(12, 3).views());
  writer.finish();
  std::vector<std::int64_t> more = left;
  more.insert(more.end(), {12, 13, 14});
  EXPECT_TRUE(holds(FileReader(folder / "b.tuck"), more));
  std::string longer = read_file(folder / "b.tuck");
  longer[longer.size() - 200] ^= 1;  // in the index
  write_file(folder / "b.tuck", longer);
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "b.tuck"); }), Errc::CorruptData);
  const RepairReport again = repair(folder / "b.tuck", folder / "b.tuck");
  EXPECT_FALSE(again.by_index);
  EXPECT_EQ(again.dropped, (std::vector{SampleRange{4, 2}}));
  EXPECT_TRUE(holds(FileReader(folder / "b.tuck"), more));
}

TEST(DamageReport, TextsOfSpecsMayDiffer) {
  const CodecSpec codec = CodecSpec::parse("block_quant(bits=4, group=64)");
  Schema schema;
  schema.arrays.push_back({.name = "x", .dtype = DType::F32, .shape = {64}, .codec = codec});
  const std::vector<float> values(64, 0.5f);
  const FramePlan plan(codec, DType::F32, {1, 64});
  std::vector<std::byte> payload(kChunkHeadBytes + plan.bytes());
  std::vector<std::byte> workspace(plan.workspace_bytes());
  put_chunk_head(payload.data(), {.array = 0, .samples = 1, .number = 0});
  const std::span frame = std::span(payload).subspan(kChunkHeadBytes);
  plan.write(ConstTensorView(values.data(), DType::F32, {1, 64}), frame, {.workspace = workspace});
  const std::string written = codec.print();
  const auto with_text = [&](const std::string& text) {
    EXPECT_EQ(text.size(), written.size());
    std::vector<std::byte> copy = payload;
    const auto head = std::span(copy).subspan(kChunkHeadBytes);
    const auto at = std::search(head.begin(), head.end(), written.begin(), written.end(),
                                [](std::byte a, char b) { return a == static_cast<std::byte>(b); });
    std::ranges::transform(text, at, [](char c) { return static_cast<std::byte>(c); });
    const std::span header = head.first(frame_header_bytes(codec, {1, 64}));
    constexpr std::size_t kCrcAt = 12;  // of the header, with zeros in its place
    store(header.data() + kCrcAt, std::uint32_t{0});
    store(header.data() + kCrcAt, crc32c(header));
    const std::vector<std::byte> record = make_record(RecordKind::Chunk, copy, 0);
    return check_chunk(*record_at(record, 0), schema).raw;
  };
  EXPECT_FALSE(with_text("block_quant(bits=4, group=64)"));
  EXPECT_FALSE(with_text("block_quant(group=64, bits=4)"));
  EXPECT_FALSE(with_text("block_quant(bits=4,group=64) "));
  EXPECT_EQ(code_thrown([&] { with_text("block_quant(bits=8, group=64)"); }), Errc::CorruptData);
}

TEST(DamageReport, UnknownRecordsAreSkipped) {
  // The chunks are followed by a record of a kind to come, then an index and a trailer as before.
  const TempFolder folder;
  write_small(folder / "a.tuck", 4, 4);
  std::string bytes = read_file(folder / "a.tuck");
  const Index index = read_index(std::as_bytes(std::span(bytes)), "a.tuck");
  const auto add = [&](const std::vector<std::byte>& part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  };
  add(make_record(static_cast<RecordKind>(99), std::vector<std::byte>(100), bytes.size()));
  const std::size_t chunks_end = bytes.size();
  const Ending ending = make_ending(index, bytes.size());
  add(ending.index);
  add(ending.trailer);
  write_file(folder / "a.tuck", bytes);
  EXPECT_EQ(FileReader(folder / "a.tuck").trailing_bytes(), 0u);
  EXPECT_TRUE(holds(FileReader(folder / "a.tuck"), numbers_to(4)));

  bytes[chunks_end + 40] ^= 1;  // the index is lost: every record is looked at
  write_file(folder / "a.tuck", bytes);
  EXPECT_EQ(repair(folder / "a.tuck", folder / "b.tuck").samples, 4);
  EXPECT_TRUE(holds(FileReader(folder / "b.tuck"), numbers_to(4)));
}

TEST(DamageReport, VersionsAndKindsToComeAreUnsupported) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 4, 4);
  std::string bytes = read_file(folder / "a.tuck");
  bytes[8] = 2;
  write_file(folder / "a.tuck", bytes);
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "a.tuck"); }), Errc::Unsupported);
  bytes[8] = 1;
  bytes[12] = 1;  // a flag
  write_file(folder / "a.tuck", bytes);
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "a.tuck"); }), Errc::Unsupported);
  write_file(folder / "a.tuck", "PK something else");
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "a.tuck"); }), Errc::CorruptData);
  write_file(folder / "a.tuck", "");
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "a.tuck"); }), Errc::CorruptData);
}

}  // namespace
}  // namespace tuckfold
