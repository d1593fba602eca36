// CIFAR's files, binary and pickled, and raw files: what is read, and what is not run.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "inputs/source_fixture.h"
#include "inputs/zip_fixture.h"

namespace tuckfold {
namespace {

std::string image(int value) { return std::string(3071, static_cast<char>(value)) + '\x07'; }

std::string record(int label, int value) { return static_cast<char>(label) + image(value); }

TEST(SourceCifar, RecordsAreLabelsAndImages) {
  const TempFolder folder;
  const auto source = open_paths({folder.write("data_batch_1.bin", record(3, 1) + record(9, 2)),
                                  folder.write("data_batch_2.bin", record(0, 5))});
  EXPECT_EQ(source->samples(), 3);
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U8, {3, 32, 32}}));
  EXPECT_EQ(source->arrays()[1], (SourceArray{"label", DType::U8, {}}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 1), (std::vector<std::uint8_t>{3, 9, 0}));
  const std::vector<std::uint8_t> pixels = read_all<std::uint8_t>(*source, 0);
  EXPECT_EQ(std::string(pixels.begin(), pixels.end()), image(1) + image(2) + image(5));
}

TEST(SourceCifar, HundredClassesHaveTwoLabels) {
  const TempFolder folder;
  const auto source =
      open_paths({folder.write("train.bin", "\x13" + record(99, 1) + "\x02" + record(50, 2))});
  ASSERT_EQ(source->arrays().size(), 3u);
  EXPECT_EQ(source->arrays()[1].name, "coarse_label");
  EXPECT_EQ(read_all<std::uint8_t>(*source, 1), (std::vector<std::uint8_t>{19, 2}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 2), (std::vector<std::uint8_t>{99, 50}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0)[3072], 2);
}

TEST(SourceCifar, OtherSizesAndLabelsAreRefused) {
  const TempFolder folder;
  const SourceOptions cifar{.format = "cifar"};
  EXPECT_EQ(error_of({folder.write("a.bin", "")}, cifar).code(), Errc::CorruptData);
  EXPECT_EQ(error_of({folder.write("a.bin", record(3, 1) + "xy")}, cifar).code(),
            Errc::CorruptData);
  EXPECT_EQ(error_of({folder.write("a.bin", record(10, 1))}, cifar).code(), Errc::CorruptData);
  std::string late;
  for (int i = 0; i < 20; ++i) late += record(i == 19 ? 200 : 1, 0);
  const Error error = error_of({folder.write("a.bin", late)}, cifar);
  EXPECT_NE(std::string(error.what()).find("byte 58387 must be a label of CIFAR-10, got 200"),
            std::string::npos)
      << error.what();
  EXPECT_EQ(error_of({folder.write("a.bin", record(10, 1))}).code(), Errc::InvalidArgument);
}

TEST(SourceCifar, RealDataAreRead) {
  const std::filesystem::path path = real_data("cifar-10-batches-bin/test_batch.bin");
  if (path.empty()) GTEST_SKIP() << "no cifar-10-batches-bin/test_batch.bin under TUCKFOLD_DATA";
  const auto source = open_paths({path});
  EXPECT_EQ(source->samples(), 10000);
  std::vector<int> counts(10);
  for (const std::uint8_t label : read_all<std::uint8_t>(*source, 1)) ++counts.at(label);
  EXPECT_EQ(counts, std::vector<int>(10, 1000));
}

// ---- pickles, in the opcodes that Python 2 wrote the official files with

std::string text(const std::string& value) {
  return value.size() < 256 ? "U" + little(value.size(), 1) + value
                            : "T" + little(value.size(), 4) + value;
}
std::string number(std::uint64_t value) {
  return value < 256 ? "K" + little(value, 1) : "M" + little(value, 2);
}

std::string list(std::initializer_list<int> values) {
  std::string out = "](";
  for (const int value : values) out += number(static_cast<std::uint64_t>(value));
  return out + "e";
}

std::string array(std::uint64_t rows, const std::string& bytes, const std::string& type = "u1",
                  const std::string& module = "numpy.core.multiarray") {
  return "c" + module + "\n_reconstruct\nq\x05" + "cnumpy\nndarray\n" + number(0) + "\x85" +
         text("b") + "\x87Rq\x06(" + number(1) + number(rows) + number(3072) + "\x86" +
         "cnumpy\ndtype\n" + text(type) + number(0) + number(1) + "\x87R(" + number(3) + text("|") +
         "NNN" + "J" + little(0xffffffff, 4) + "J" + little(0xffffffff, 4) + number(0) + "tb" +
         "\x89" + text(bytes) + "tb";
}

std::string batch(const std::string& entries) {
  return "\x80\x02}q\x01(" + text("batch_label") + "q\x02" + text("testing batch 1 of 1") +
         entries + "u.";
}

// How Python 3 writes bytes in protocol 2, and the same text encoded again so many times.
std::string encoded(const std::string& latin1) {
  return "c_codecs\nencode\nq\x41X" + little(latin1.size(), 4) + latin1 + "q\x42X" + little(6, 4) +
         "latin1q\x43\x86R";
}
std::string again(int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += "h\x41h\x42h\x43\x86RN";
  return out;
}

std::string good() {
  return batch(text("labels") + list({4, 2}) + text("data") + array(2, image(1) + image(2)) +
               text("filenames") + "](" + text("a.png") + text("b.png") + "e");
}

TEST(SourceCifarPickle, BatchesAreImagesAndLabels) {
  const TempFolder folder;
  const auto source =
      open_paths({folder.write("data_batch_1", good()), folder.write("data_batch_2", good())});
  EXPECT_EQ(source->samples(), 4);
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U8, {3, 32, 32}}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 1), (std::vector<std::uint8_t>{4, 2, 4, 2}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0)[3072], 2);
}

TEST(SourceCifarPickle, LaterProtocolsOfTodaysNumpyAreRead) {
  const std::filesystem::path corpus =
      std::filesystem::path(TUCKFOLD_SOURCE_DIR) / "fuzz/corpus/cifar_pickle";
  const auto three = open_paths({corpus / "protocol3"});
  for (const char* name : {"protocol2_python3", "protocol3", "protocol4", "protocol5"}) {
    const auto source = open_paths({corpus / name});
    EXPECT_EQ(read_all<std::uint8_t>(*source, 1), (std::vector<std::uint8_t>{3, 4})) << name;
    EXPECT_EQ(read_all<std::uint8_t>(*source, 0), read_all<std::uint8_t>(*three, 0)) << name;
  }
}

TEST(SourceCifarPickle, HundredClassesHaveTwoLabels) {
  const TempFolder folder;
  const auto source = open_paths(
      {folder.write("train", batch(text("fine_labels") + list({99}) + text("coarse_labels") +
                                   list({19}) + text("data") + array(1, image(1))))});
  ASSERT_EQ(source->arrays().size(), 3u);
  EXPECT_EQ(source->arrays()[1].name, "coarse_label");
  EXPECT_EQ(read_all<std::uint8_t>(*source, 2), (std::vector<std::uint8_t>{99}));
}

TEST(SourceCifarPickle, NothingButPlainDataIsTaken) {
  const TempFolder folder;
  const SourceOptions format{.format = "cifar_pickle"};
  const auto code = [&](const std::string& content) {
    return error_of({folder.write("a", content)}, format).code();
  };
  const std::string call = std::string("cposix\nsystem\n") + text("true") + "\x85R";
  EXPECT_EQ(code("\x80\x02" + call + "."), Errc::Unsupported);
  EXPECT_EQ(code(batch(text("data") + call)), Errc::Unsupported);
  EXPECT_EQ(code(batch(text("data") + array(1, image(1), "u1", "posix"))), Errc::Unsupported);
  EXPECT_EQ(code(batch(text("data") + array(1, image(1), "f4"))), Errc::Unsupported);
  EXPECT_EQ(code(batch(text("labels") + list({1}))), Errc::Unsupported);
  EXPECT_EQ(code("\x80\x05}."), Errc::Unsupported);
  EXPECT_EQ(code("\x80\x06}."), Errc::Unsupported);
  const std::string stacked = text("posix") + text("system") + "\x93" + text("true") + "\x85R";
  EXPECT_EQ(code(batch(text("data") + stacked)), Errc::Unsupported);
  for (const char* opcode : {"i", "o", "\x81", "P", "Q", "\x82", "V", "I", "F", "0"}) {
    EXPECT_EQ(code(std::string("\x80\x02}") + opcode), Errc::Unsupported) << opcode;
  }
}

TEST(SourceCifarPickle, WhatMakesNoSenseIsCorruptData) {
  const TempFolder folder;
  const SourceOptions format{.format = "cifar_pickle"};
  for (const std::string& content :
       {std::string(), std::string("\x80\x02"), std::string("\x80\x02."), std::string("\x80\x02u."),
        std::string("\x80\x02}(K\x01u."), std::string("\x80\x02](u."),
        std::string("\x80\x02h\x07."), std::string("\x80\x02(\x85."),
        std::string("\x80\x02K\x01)R."), std::string("\x80\x02}Nb."),
        std::string("\x80\x02T\xff\xff\xff\xff.", 8), std::string("\x80\x04\x93."),
        std::string("\x80\x04}}\x93."), std::string("\x80\x04\x94."),
        std::string("\x80\x04\x95\xff\0\0\0\0\0\0\0}.", 13),
        std::string("\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\xff.", 12),
        std::string("\x80\x02"
                    "cnumpy\nnd"),
        // Texts that are not latin1, and one text that is encoded many times.
        batch(text("data") + encoded("\xc4\x80")), batch(text("data") + encoded("\xff")),
        batch(text("data") + encoded("\xc2")),
        batch(encoded(std::string(3000, 'x')) + "q\x40" + "N" + again(9)),
        batch(text("data") + array(3, image(1) + image(2))),
        batch(text("data") + array(1, "short")),
        batch(text("labels") + list({10}) + text("data") + array(1, image(1)))}) {
    const Error error = error_of({folder.write("a", content)}, format);
    EXPECT_EQ(error.code(), Errc::CorruptData) << error.what();
  }
  EXPECT_EQ(error_of({folder.write("a", batch(text("labels") + list({1, 2}) + text("data") +
                                              array(1, image(1))))},
                     format)
                .code(),
            Errc::InvalidArgument);
}

TEST(SourceCifarPickle, DamagedBatchesNeverCrash) {
  expect_survives_damage(kCifarPickleSource, good());
  const std::filesystem::path corpus =
      std::filesystem::path(TUCKFOLD_SOURCE_DIR) / "fuzz/corpus/cifar_pickle";
  for (const char* name : {"protocol2_python3", "protocol4", "protocol5"}) {
    std::ifstream file(corpus / name, std::ios::binary);
    expect_survives_damage(kCifarPickleSource, {std::istreambuf_iterator<char>(file), {}});
  }
}

// ---- raw

TEST(SourceRaw, DtypeAndShapeSayWhatTheBytesAre) {
  const TempFolder folder;
  const auto path = folder.write("a.dat", bytes_of<float>({1, 2, 3, 4, 5, 6}));
  const auto source = open_paths({path}, {.dtype = DType::F32, .sample = Shape{1, 3}});
  EXPECT_EQ(source->samples(), 2);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"data", DType::F32, {1, 3}}));
  EXPECT_EQ(read_all<float>(*source, 0)[5], 6.0f);
  EXPECT_EQ(open_paths({path}, {.dtype = DType::BF16, .sample = Shape{}})->samples(), 12);
}

TEST(SourceRaw, WhatDoesNotDivideIsRefused) {
  const TempFolder folder;
  const auto path = folder.write("a.dat", std::string(24, 'x'));
  EXPECT_STREQ(error_of({path}, {.dtype = DType::F32, .sample = Shape{4}}).what(),
               ("[raw] '" + path.string() +
                "' must hold whole samples of 4 f32, but has 24 bytes; give its dtype and shape")
                   .c_str());
  for (const Shape& sample :
       {Shape{0}, Shape{-1}, Shape{1 << 30, 1 << 30, 1 << 30}, Shape{std::int64_t{1} << 62}}) {
    EXPECT_EQ(error_of({path}, {.dtype = DType::F32, .sample = sample}).code(),
              Errc::InvalidArgument);
  }
  EXPECT_EQ(error_of({path}, {.dtype = DType::F32}).code(), Errc::InvalidArgument);
  EXPECT_EQ(error_of({path}, {.format = "raw"}).code(), Errc::InvalidArgument);
}

TEST(SourceRaw, RealFieldsAreRead) {
  const std::filesystem::path path = real_data("sci_float/testfloat_8_8_128.dat");
  if (path.empty()) GTEST_SKIP() << "no sci_float/testfloat_8_8_128.dat under TUCKFOLD_DATA";
  EXPECT_EQ(open_paths({path}, {.dtype = DType::F32, .sample = Shape{8, 128}})->samples(), 8);
}

}  // namespace
}  // namespace tuckfold
