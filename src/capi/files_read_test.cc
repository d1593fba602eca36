// Reading files through the C API: samples in any order, in forked children, of damaged files.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "capi/files_fixture.h"

namespace tuckfold::ref {
namespace {

TEST(CFiles, TheJsonOfAReaderSaysWhatIsInIt) {
  const TempFolder folder;
  tuckfold_write_options options = quick();
  options.metadata = R"({"source": "synthetic"})";
  write_all(folder / "a.tuck", options, 0, 7);
  const ReaderPtr reader = open_reader(folder / "a.tuck");
  const std::string text = tuckfold_reader_json(reader.get());
  const Json json = Json::parse(text);
  EXPECT_EQ(json.find("samples")->whole(), 7);
  EXPECT_EQ(json.find("metadata")->text, options.metadata);
  EXPECT_TRUE(json.find("warnings")->items.empty());
  const Json& plane = json.find("arrays")->items.at(0);
  EXPECT_EQ(plane.find("name")->string, "plane");
  EXPECT_EQ(plane.find("dtype")->string, "f32");
  EXPECT_EQ(plane.find("shape")->text, "[8, 8]");
  EXPECT_EQ(plane.find("codec")->string, "dct_chop(keep=2)");
  EXPECT_EQ(plane.find("chunks")->whole(), 4);
  EXPECT_STREQ(tuckfold_reader_json(nullptr), "{}");
  write_all(folder / "b.tuck", options, 1, 8);  // other samples, of the same sizes
  const ReaderPtr other = open_reader(folder / "b.tuck");
  const Json changed = Json::parse(tuckfold_reader_json(other.get()));
  EXPECT_EQ(changed.find("bytes")->whole(), json.find("bytes")->whole());
  EXPECT_NE(changed.find("checksum")->string, json.find("checksum")->string);
}

TEST(CFiles, TheJsonOfAReaderSaysHowSamplesArePacked) {
  const TempFolder folder;
  write_all(folder / "a.tuck", quick(), 0, 7);
  const ReaderPtr reader = open_reader(folder / "a.tuck");
  const Json json = Json::parse(tuckfold_reader_json(reader.get()));
  const auto& arrays = json.find("arrays")->items;
  EXPECT_EQ(arrays.at(0).find("packed_alone")->text, "true");
  EXPECT_EQ(arrays.at(0).find("codecs")->text, R"-(["dct_chop(keep=2)"])-");
  EXPECT_EQ(arrays.at(1).find("packed_alone")->text, "false");
}

// ---- packed samples -----------------------------------------------------------------------------

TEST(CFiles, PackedSamplesBecomeImages) {
  const TempFolder folder;
  write_all(folder / "a.tuck", quick(), 0, 7);
  const ReaderPtr reader = open_reader(folder / "a.tuck");
  const std::int64_t samples[] = {5, 0, 5};
  std::int32_t places[3];
  tuckfold_packed_part part{};
  std::size_t found = 9, needed = 0;
  const auto gather = [&](void* room, std::size_t bytes) {
    return tuckfold_reader_gather_packed(reader.get(), 0, samples, 3, room, bytes, places, &part, 1,
                                         &found, &needed, 1);
  };
  ASSERT_EQ(gather(nullptr, 0), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_EQ(found, 1u);
  EXPECT_EQ(part.codec, nullptr);  // there was no room
  std::vector<std::byte> room(needed);
  ASSERT_EQ(gather(room.data(), room.size()), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_STREQ(part.codec, "dct_chop(keep=2)");
  EXPECT_EQ(part.samples, 3);
  EXPECT_EQ(part.bytes, needed);
  EXPECT_EQ(places[2], 2);

  const std::int64_t shape[] = {3, 8, 8}, images[] = {3, 1, 4, 8};
  tuckfold_plan* plan = nullptr;
  ASSERT_EQ(tuckfold_plan_get(part.codec, TUCKFOLD_F32, 3, shape, &plan), TUCKFOLD_OK);
  EXPECT_GE(tuckfold_unpack_images_bytes(plan, TUCKFOLD_CPU), 3 * 64 * sizeof(float));
  EXPECT_EQ(tuckfold_unpack_images_bytes(nullptr, TUCKFOLD_CPU), 0u);
  std::vector<float> out(3 * 32);
  const tuckfold_tensor view{.data = out.data(), .dtype = TUCKFOLD_F32, .rank = 4, .shape = images};
  const tuckfold_window windows[] = {{4, 0, 0}, {0, 0, 1}, {0, 0, 0}};
  const float scale = 2, add = 1;
  tuckfold_image_options how{
      .struct_bytes = sizeof how, .channels = 1, .scale = &scale, .add = &add};
  const auto make = [&] {
    return tuckfold_unpack_images(plan, room.data(), needed, windows, nullptr, &how, &view,
                                  nullptr);
  };
  ASSERT_EQ(make(), TUCKFOLD_OK) << tuckfold_last_error();
  const std::vector<float> five = plane_read(5), zero = plane_read(0);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], five[32 + i] * 2 + 1);
    EXPECT_EQ(out[32 + i], zero[i / 8 * 8 + 7 - i % 8] * 2 + 1);
    EXPECT_EQ(out[64 + i], five[i] * 2 + 1);
  }
  how.channels = 3;
  EXPECT_EQ(make(), TUCKFOLD_INVALID_ARGUMENT);
  how.struct_bytes = 1;
  EXPECT_EQ(make(), TUCKFOLD_INVALID_ARGUMENT);
  tuckfold_plan_release(plan);
  EXPECT_EQ(tuckfold_reader_gather_packed(reader.get(), 1, samples, 3, room.data(), room.size(),
                                          places, &part, 1, &found, &needed, 1),
            TUCKFOLD_UNSUPPORTED);
}

// ---- samples in any order -----------------------------------------------------------------------

// f32 samples of 2 x 8 x 8 with NaN as fill value, in chunks of 4.
void write_field(const std::string& path, const char* codec, std::int64_t samples, bool with_fill) {
  std::vector<float> values(static_cast<std::size_t>(samples) * 128);
  std::mt19937 random(7);
  for (float& value : values) value = static_cast<float>(random() % 1000) / 100;
  if (with_fill) values[5] = values[200] = std::numeric_limits<float>::quiet_NaN();
  FileWriter writer(
      path,
      {{.name = "field",
        .dtype = DType::F32,
        .shape = {2, 8, 8},
        .codec = CodecSpec::parse(codec),
        .samples_per_chunk = 4,
        .fill = with_fill ? std::vector<FillValue>{{NAN}} : std::vector<FillValue>{}}},
      ref::kQuick);
  writer.write({ConstTensorView(values.data(), DType::F32, {samples, 2, 8, 8})});
  writer.finish();
}

TEST(CFiles, GatheredSamplesAreThoseThatAreReadOneByOne) {
  const TempFolder folder;
  constexpr std::int64_t kSamples = 22;
  std::mt19937 random(3);
  for (const char* codec : {"raw", "zstd", "dct_chop(keep=4)", "dct_quant(rate=4)",
                            "block_quant(bits=8)", "bounded(abs=0.1) | zstd"}) {
    for (const bool with_fill : {false, true}) {
      write_field(folder / "a.tuck", codec, kSamples, with_fill);
      const FileReader plain(folder / "a.tuck");
      const ReaderPtr reader = open_reader(folder / "a.tuck");
      std::vector<float> all(kSamples * 128);
      plain.read(0, 0, kSamples, TensorView(all.data(), DType::F32, {kSamples, 2, 8, 8}), 1);
      for (const std::size_t count : {1, 2, 7, 22, 60}) {
        std::vector<std::int64_t> samples(count);
        for (std::int64_t& sample : samples)
          sample = static_cast<std::int64_t>(random() % kSamples);
        if (count == 7) samples = {4, 5, 6, 7, 8, 9, 10};  // in order
        for (const int threads : {1, 3}) {
          // Every other place of the output is left alone, and axes are swapped.
          std::vector<float> out(count * 256, -1.0F);
          const std::int64_t shape[] = {static_cast<std::int64_t>(count), 2, 8, 8};
          const std::int64_t strides[] = {256, 2, 4, 32};
          const tuckfold_tensor to = {.data = out.data(),
                                      .dtype = TUCKFOLD_F32,
                                      .rank = 4,
                                      .shape = shape,
                                      .strides = strides};
          ASSERT_EQ(tuckfold_reader_gather(reader.get(), 0, samples.data(), count, &to, threads),
                    TUCKFOLD_OK)
              << tuckfold_last_error();
          for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t k = 0; k < 128; ++k) {
              const std::size_t at = i * 256 + k / 64 * 2 + k / 8 % 8 * 4 + k % 8 * 32;
              const float want = all[static_cast<std::size_t>(samples[i]) * 128 + k];
              ASSERT_EQ(std::memcmp(&out[at], &want, 4), 0) << codec << ' ' << i << ' ' << k;
              ASSERT_EQ(out[at + 1], -1.0F);
            }
          }
        }
      }
    }
  }
}

TEST(CFiles, ReadingChecksItsArguments) {
  const TempFolder folder;
  write_all(folder / "a.tuck", quick(), 0, 7);
  const ReaderPtr reader = open_reader(folder / "a.tuck");
  std::vector<std::int64_t> labels(7);
  const std::int64_t shape[] = {2}, wrong_shape[] = {3};
  tuckfold_tensor out = {.data = labels.data(), .dtype = TUCKFOLD_I64, .rank = 1, .shape = shape};
  const std::int64_t samples[] = {6, 0}, past[] = {6, 7}, negative[] = {-1, 0};
  const auto gathers = [&](const std::int64_t* from) {
    return tuckfold_reader_gather(reader.get(), 2, from, 2, &out, 0);
  };
  EXPECT_EQ(gathers(samples), TUCKFOLD_OK);
  EXPECT_EQ(labels[0], 6 * 1000003);
  EXPECT_EQ(gathers(past), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_STREQ(tuckfold_last_error(), "[read] samples must be in 0..6, got 7");
  EXPECT_EQ(gathers(negative), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(gathers(nullptr), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_reader_gather(reader.get(), 3, samples, 2, &out, 0),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_reader_gather(nullptr, 2, samples, 2, &out, 0), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_reader_gather(reader.get(), 2, samples, 2, &out, -1),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_reader_read(reader.get(), 2, 6, 2, &out, 0), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_reader_read(reader.get(), 9, 0, 2, &out, 0), TUCKFOLD_INVALID_ARGUMENT);
  out.shape = wrong_shape;
  EXPECT_EQ(gathers(samples), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_STREQ(tuckfold_last_error(), "[read] 'label' is i64 2, the output is i64 3");
  out.shape = shape;
  out.dtype = TUCKFOLD_U64;
  EXPECT_EQ(gathers(samples), TUCKFOLD_INVALID_ARGUMENT);
  out.dtype = TUCKFOLD_I64;
  out.data = nullptr;
  EXPECT_EQ(gathers(samples), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_reader_read(reader.get(), 2, 0, 2, &out, 0), TUCKFOLD_INVALID_ARGUMENT);
  tuckfold_reader* none = nullptr;
  EXPECT_EQ(tuckfold_reader_open((folder / "none.tuck").c_str(), 0, &none), TUCKFOLD_IO);
  EXPECT_EQ(tuckfold_reader_open(nullptr, 0, &none), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  tuckfold_reader_close(nullptr);
}

TEST(CFiles, AMaskIsNoArray) {
  const TempFolder folder;
  write_field(folder / "a.tuck", "dct_quant(rate=4)", 4, true);
  const ReaderPtr reader = open_reader(folder / "a.tuck");
  std::vector<std::uint8_t> marks(128);
  const std::int64_t shape[] = {1, 2, 8, 8};
  const tuckfold_tensor out = {
      .data = marks.data(), .dtype = TUCKFOLD_U8, .rank = 4, .shape = shape};
  EXPECT_EQ(tuckfold_reader_read(reader.get(), 1, 0, 1, &out, 0), TUCKFOLD_INVALID_ARGUMENT);
}

TEST(CFiles, ADamagedChunkIsNamedByFileArrayAndSamples) {
  const TempFolder folder;
  write_all(folder / "a.tuck", quick(), 0, 12);
  std::string bytes = ref::read_file(folder / "a.tuck");
  const FileReader plain(folder / "a.tuck");
  const auto damage = [&](std::size_t chunk) {
    const std::span<const std::byte> frame = plain.chunk_bytes(0, chunk).frame;
    const std::size_t at =
        bytes.find(std::string(reinterpret_cast<const char*>(frame.data()), frame.size()));
    bytes[at + frame.size() - 1] ^= 1;
  };
  damage(4);
  damage(2);
  ref::write_file(folder / "b.tuck", bytes);
  const ReaderPtr reader = open_reader(folder / "b.tuck");
  std::vector<float> planes(4 * 64);
  const std::int64_t shape[] = {4, 8, 8}, samples[] = {11, 9, 0, 5};
  const tuckfold_tensor out = {
      .data = planes.data(), .dtype = TUCKFOLD_F32, .rank = 3, .shape = shape};
  EXPECT_EQ(tuckfold_reader_gather(reader.get(), 0, samples, 4, &out, 2), TUCKFOLD_CORRUPT_DATA);
  const std::string message = tuckfold_last_error();
  EXPECT_NE(message.find("b.tuck': the chunk of 'plane' with samples 4 to 5 is broken"),
            std::string::npos)
      << message;
}

// ---- forks --------------------------------------------------------------------------------------

// The exit status of a child that runs this.
int in_child(auto&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CFiles, AForkedChildReadsAndLeavesItsParentsWriterAlone) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_all(path, quick(), 0, 5);
  const ReaderPtr reader = open_reader(path);
  tuckfold_write_options options = quick();
  options.mode = TUCKFOLD_APPEND;
  WriterPtr writer;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK);
  ASSERT_EQ(write(writer.get(), 5, 20), TUCKFOLD_OK);
  const int status = in_child([&] {
    std::int64_t labels[2] = {};
    const std::int64_t shape[] = {2}, samples[] = {4, 1};
    const tuckfold_tensor out = {.data = labels, .dtype = TUCKFOLD_I64, .rank = 1, .shape = shape};
    if (tuckfold_reader_gather(reader.get(), 2, samples, 2, &out, 2) != TUCKFOLD_OK) return 1;
    if (labels[0] != 4 * 1000003) return 2;
    if (write(writer.get(), 25, 1) != TUCKFOLD_INVALID_ARGUMENT) return 3;
    tuckfold_writer_close(writer.get(), 0);  // would undo the append
    return 0;
  });
  EXPECT_EQ(status, 0);
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK) << tuckfold_last_error();
  EXPECT_TRUE(holds_first(path, 25));
}

TEST(CFiles, AChildReadsMoreShardsThanAreMappedAtATime) {
  constexpr int kShards = 1030;
  const TempFolder folder;
  ref::write_small(folder / "one.tuck", 2, 2);
  std::vector<std::string> shards;
  for (int i = 0; i < kShards; ++i) {
    shards.push_back(folder / (std::to_string(i) + ".tuck"));
    std::filesystem::create_hard_link(folder / "one.tuck", shards.back());
  }
  write_manifest(folder / "all.tuck", shards);
  const ReaderPtr reader = open_reader(folder / "all.tuck");
  const auto reads = [&] {
    std::int64_t labels[2] = {};
    const std::int64_t shape[] = {2}, samples[] = {2 * kShards - 1, 3};
    const tuckfold_tensor out = {.data = labels, .dtype = TUCKFOLD_I64, .rank = 1, .shape = shape};
    if (tuckfold_reader_gather(reader.get(), 2, samples, 2, &out, 2) != TUCKFOLD_OK) return 1;
    return labels[0] == 1000003 && labels[1] == 1000003 ? 0 : 2;
  };
  EXPECT_EQ(reads(), 0);
  EXPECT_EQ(in_child(reads), 0);
  EXPECT_EQ(in_child([&] {
              write_manifest(folder / "all.tuck", std::span(shards).first(1029));
              return reads();  // another dataset is there now
            }),
            1);
  EXPECT_EQ(reads(), 0);
}

// ---- codecs and differences ---------------------------------------------------------------------

TEST(CFiles, LaddersHoldWhatSuitsThePart) {
  std::vector<float> values(64 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 64) / 64;
  const std::int64_t shape[] = {64, 64};
  const tuckfold_tensor part = {
      .data = values.data(), .dtype = TUCKFOLD_F32, .rank = 2, .shape = shape};
  const char* json = nullptr;
  ASSERT_EQ(tuckfold_ladders(&part, TUCKFOLD_MAX_ERROR, 0.01, 1, &json), TUCKFOLD_OK);
  const std::string text = json;
  const Json ladders = Json::parse(text);
  EXPECT_FALSE(ladders.items.empty());
  EXPECT_NE(text.find("bounded(abs=0.01)"), std::string::npos) << text;
  EXPECT_EQ(text.find("block_quant"), std::string::npos) << text;  // it promises no bound
  EXPECT_EQ(tuckfold_ladders(&part, 3, 0.01, 1, &json), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_ladders(nullptr, 0, 45, 1, &json), TUCKFOLD_INVALID_ARGUMENT);
  ASSERT_EQ(tuckfold_choose_exact(&part, 1, &json), TUCKFOLD_OK);
  EXPECT_NE(std::string(json).find("zstd"), std::string::npos) << json;
}

TEST(CFiles, DifferencesAreOverFiniteValues) {
  const float original[] = {0, 1, 2, INFINITY}, result[] = {0, 1.5F, 2, 7};
  const std::int64_t shape[] = {4}, other[] = {2, 2};
  const tuckfold_tensor a = {
      .data = const_cast<float*>(original), .dtype = TUCKFOLD_F32, .rank = 1, .shape = shape};
  tuckfold_tensor b = a;
  b.data = const_cast<float*>(result);
  tuckfold_difference difference;
  ASSERT_EQ(tuckfold_compare(&a, &b, &difference), TUCKFOLD_OK);
  EXPECT_EQ(difference.finite, 3);
  EXPECT_EQ(difference.changed, 1);
  EXPECT_EQ(difference.max_error, 0.5);
  EXPECT_DOUBLE_EQ(difference.psnr_db, 20 * std::log10(2.0) - 10 * std::log10(0.25 / 3));
  b.rank = 2;
  b.shape = other;
  EXPECT_EQ(tuckfold_compare(&a, &b, &difference), TUCKFOLD_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tuckfold::ref
