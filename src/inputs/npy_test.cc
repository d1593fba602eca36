// .npy files: what numpy writes is read, what a hostile hand writes is refused.
#include "inputs/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/tensor_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

class TempFile {
 public:
  explicit TempFile(const std::string& content = {}) {
    path_ = testing::TempDir() + "tuckfold_npy_XXXXXX";
    const int file = ::mkstemp(path_.data());
    EXPECT_EQ(::write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    ::close(file);
  }
  ~TempFile() { ::unlink(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string npy(const std::string& dictionary, const std::string& data = {}, int version = 1) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    text += static_cast<char>(dictionary.size() >> (8 * i) & 255);
  }
  return text + dictionary + data;
}

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::vector<float> read_f32(const std::string& content) {
  const TempFile temp(content);
  const NpyFile file(temp.path());
  std::vector<float> values(static_cast<std::size_t>(file.shape().elems()));
  file.read(DType::F32, values.data());
  return values;
}

// The error that reading gives, or a failure of the test if there is none.
Error error_of(const std::string& content) {
  const TempFile temp(content);
  try {
    const NpyFile file(temp.path());
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(temp.path()), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "accepted: " << content;
  return {Errc::Internal, ""};
}
Errc code_of(const std::string& content) { return error_of(content).code(); }

TEST(Npy, EveryTypeIsReadAsF32) {
  EXPECT_EQ(read_f32(npy(header("<f4", "(2,)"), bytes_of<float>({1.5f, -2}))),
            (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(read_f32(npy(header("<f8", "(1,)"), bytes_of<double>({0.25}))), std::vector{0.25f});
  EXPECT_EQ(read_f32(npy(header("<f2", "(1,)"), bytes_of<std::uint16_t>({0x3e00}))),
            std::vector{1.5f});
  EXPECT_EQ(read_f32(npy(header("|u1", "(1,)"), bytes_of<std::uint8_t>({255}))),
            std::vector{255.f});
  EXPECT_EQ(read_f32(npy(header("|b1", "(1,)"), bytes_of<std::uint8_t>({1}))), std::vector{1.f});
  EXPECT_EQ(read_f32(npy(header("|i1", "(1,)"), bytes_of<std::int8_t>({-3}))), std::vector{-3.f});
  EXPECT_EQ(read_f32(npy(header("<i2", "(1,)"), bytes_of<std::int16_t>({-300}))),
            std::vector{-300.f});
  EXPECT_EQ(read_f32(npy(header("<u2", "(1,)"), bytes_of<std::uint16_t>({65535}))),
            std::vector{65535.f});
  EXPECT_EQ(read_f32(npy(header("<i4", "(1,)"), bytes_of<std::int32_t>({-70000}))),
            std::vector{-70000.f});
  EXPECT_EQ(read_f32(npy(header("<u4", "(1,)"), bytes_of<std::uint32_t>({1u << 31}))),
            std::vector{0x1p31f});
  EXPECT_EQ(read_f32(npy(header("<i8", "(1,)"), bytes_of<std::int64_t>({-1}))), std::vector{-1.f});
  EXPECT_EQ(read_f32(npy(header("<u8", "(1,)"), bytes_of<std::uint64_t>({1ull << 63}))),
            std::vector{0x1p63f});
}

TEST(Npy, AllVersionsAndSpellingsAreRead) {
  const std::string data = bytes_of<float>({7});
  for (const int version : {1, 2, 3}) {
    EXPECT_EQ(read_f32(npy(header("<f4", "(1,)"), data, version)), std::vector{7.f});
  }
  EXPECT_EQ(read_f32(npy(header("<f4", "(1L, 1L)"), data)), std::vector{7.f});
  EXPECT_EQ(read_f32(npy(header("<f4", "()"), data)), std::vector{7.f});
  EXPECT_EQ(read_f32(npy("{\"shape\":(1,1),\"fortran_order\":False,\"descr\":\"<f4\"} \n", data)),
            std::vector{7.f});
  EXPECT_EQ(read_f32(npy(header("<f4", "(0, 4611686018427387904)"))), std::vector<float>{});
}

TEST(Npy, FortranOrderBecomesStrides) {
  const TempFile temp(npy(header("<f4", "(2, 3)", "True"), bytes_of<float>({0, 10, 1, 11, 2, 12})));
  const NpyFile file(temp.path());
  EXPECT_EQ(file.view().strides, Shape({1, 2}));
  std::vector<float> values(6);
  file.read(DType::F32, values.data());
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 10, 11, 12}));
}

TEST(Npy, ViewsAreAlignedWhereverTheHeaderEnds) {
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const TempFile temp(
        npy(header("<f8", "(2,)") + std::string(pad, ' '), bytes_of<double>({3, 4})));
    const NpyFile file(temp.path());
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(file.view().data) % alignof(double), 0u);
    EXPECT_EQ(static_cast<const double*>(file.view().data)[1], 4);
  }
}

TEST(Npy, ValuesAreReadAsTheyAreOrAsF32Alone) {
  const TempFile temp(npy(header("<i2", "(1,)"), bytes_of<std::int16_t>({5})));
  const NpyFile file(temp.path());
  EXPECT_EQ(file.dtype(), DType::I16);
  EXPECT_EQ(*static_cast<const std::int16_t*>(file.view().data), 5);
  double value;
  EXPECT_THROW(file.read(DType::F64, &value), Error);
}

TEST(Npy, EveryDtypeIsWrittenAndReadAsItIs) {
  for (const DType dtype : kDTypes) {
    const ref::Tensor in = std::move(ref::Tensor(dtype, {3, 4}).fill(ref::Pattern::Random));
    const TempFile temp;
    if (dtype == DType::BF16) {
      EXPECT_THROW(write_npy(temp.path(), in.view()), Error);
      continue;
    }
    write_npy(temp.path(), in.view());
    const NpyFile file(temp.path());
    EXPECT_EQ(file.dtype(), dtype);
    std::vector<std::byte> back(in.bytes().size());
    file.read(dtype, back.data());
    EXPECT_EQ(back, in.bytes()) << to_string(dtype);
  }
}

TEST(Npy, WhatIsWrittenIsRead) {
  std::vector<double> values(24);
  std::iota(values.begin(), values.end(), -5.0);
  const TempFile temp;
  // A transposed view: written row-major all the same.
  write_npy(temp.path(), ConstTensorView(values.data(), DType::F64, {4, 3, 2}, {1, 8, 4}));
  const NpyFile file(temp.path());
  EXPECT_EQ(file.shape(), Shape({4, 3, 2}));
  EXPECT_EQ(std::bit_cast<std::uintptr_t>(file.view().data) % 64, 0u);
  std::vector<double> back(24);
  file.read(DType::F64, back.data());
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(back[i], values[i / 6 + i / 2 % 3 * 8 + i % 2 * 4]);
  }
}

TEST(Npy, WholeNumbersAreViewedAndWrittenAsTheyAre) {
  const std::vector<std::int64_t> wide = {INT64_MIN, -1, 0, INT64_MAX};
  const std::vector<std::int32_t> narrow = {INT32_MIN, -1, INT32_MAX};
  const TempFile first, second;
  write_npy(first.path(), ConstTensorView(wide.data(), DType::I64, {4}));
  write_npy(second.path(), ConstTensorView(narrow.data(), DType::I32, {3}));
  const NpyFile wide_file(first.path()), narrow_file(second.path());
  EXPECT_EQ(wide_file.dtype(), DType::I64);
  EXPECT_EQ(narrow_file.dtype(), DType::I32);
  std::vector<std::int64_t> wide_back(4);
  std::vector<std::int32_t> narrow_back(3);
  wide_file.read(DType::I64, wide_back.data());
  narrow_file.read(DType::I32, narrow_back.data());
  EXPECT_EQ(wide_back, wide);
  EXPECT_EQ(narrow_back, narrow);
  EXPECT_EQ(static_cast<const std::int64_t*>(wide_file.view().data)[3], INT64_MAX);
  EXPECT_THROW(wide_file.read(DType::I32, wide_back.data()), Error);
}

TEST(Npy, BoolsAreZeroOrOne) {
  const TempFile temp(npy(header("|b1", "(4,)"), bytes_of<std::uint8_t>({1, 0, 255, 2})));
  const NpyFile file(temp.path());
  EXPECT_EQ(file.dtype(), DType::Bool);
  EXPECT_EQ(file.view().dtype, DType::Bool);
  std::vector<std::uint8_t> values(4);
  file.read(DType::Bool, values.data());
  EXPECT_EQ(values, (std::vector<std::uint8_t>{1, 0, 1, 1}));
  EXPECT_EQ(static_cast<const std::uint8_t*>(file.view().data)[2], 1);
  std::vector<float> reals(4);
  file.read(DType::F32, reals.data());
  EXPECT_EQ(reals, (std::vector<float>{1, 0, 1, 1}));
}

TEST(Npy, EveryTruncationIsCorruptData) {
  const std::string whole = npy(header("<f4", "(2, 2)"), bytes_of<float>({1, 2, 3, 4}), 2);
  EXPECT_EQ(read_f32(whole).size(), 4u);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(code_of(whole.substr(0, size)), Errc::CorruptData) << size;
  }
}

TEST(Npy, HugeShapesAreCorruptDataWithoutAllocation) {
  const std::string data(64, 'x');
  for (const char* shape :
       {"(17,)", "(4611686018427387904,)", "(4294967296, 4294967296)", "(9223372036854775807,)",
        "(2, 9223372036854775807)", "(99999999999999999999,)", "(1152921504606846976, 4)"}) {
    EXPECT_EQ(code_of(npy(header("<f4", shape), data)), Errc::CorruptData) << shape;
  }
  // A length field past the end of the file.
  std::string false_length = npy(header("<f4", "(1,)"), data, 2);
  std::memset(&false_length[8], 0xff, 4);
  EXPECT_EQ(code_of(false_length), Errc::CorruptData);
}

TEST(Npy, MalformedHeadersAreCorruptData) {
  const std::string data(64, 'x');
  for (const std::string& text : {
           std::string(),
           std::string("{"),
           std::string("{}"),
           std::string("{'descr'"),
           std::string("{'descr: '<f4'}"),
           header("", "(1,)"),
           header("<", "(1,)"),
           header("<f4", "(1"),
           header("<f4", "(-1,)"),
           header("<f4", "(1.5,)"),
           header("<f4", "(1 2)"),
           header("<f4", "1"),
           header("<f4", "(,)"),
           header("<f4", "(1,)", "None"),
           header("<f4", "(1,)") + "x",
           std::string("{'descr': '<f4', 'fortran_order': False}"),
           std::string("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"),
           std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'extra': 1}"),
       }) {
    EXPECT_EQ(code_of(npy(text, data)), Errc::CorruptData) << text;
  }
  EXPECT_EQ(code_of("PK\x03\x04 a zip archive, as .npz is"), Errc::CorruptData);
}

TEST(Npy, WhatNumpyHasAndWeHaveNotIsUnsupported) {
  const std::string data(64, 'x');
  for (const char* descr : {"<c8", "<V2", "bfloat16", "|O", "<U4", "<M8[ns]", ">f4", "xf4"}) {
    EXPECT_EQ(code_of(npy(header(descr, "(1,)"), data)), Errc::Unsupported) << descr;
  }
  EXPECT_EQ(code_of(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", data)),
            Errc::Unsupported);
  std::string axes = "(";
  for (int i = 0; i < 65; ++i) axes += "1, ";
  EXPECT_EQ(code_of(npy(header("<f4", axes + ")"), data)), Errc::Unsupported);
  EXPECT_EQ(code_of(npy(header("<f4", "(1,)"), data, 4)), Errc::Unsupported);
  const std::string big_endian = error_of(npy(header(">f4", "(1,)"), data)).what();
  EXPECT_NE(big_endian.find("astype('<f4')"), std::string::npos) << big_endian;
}

TEST(Npy, WhatTheSystemRefusesIsIo) {
  for (const char* path : {"/nonexistent/a.npy", "/tmp", "/dev/null"}) {
    try {
      const NpyFile file(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::Io) << error.what();
    }
  }
  const float value = 1;
  try {
    write_npy("/nonexistent/a.npy", ConstTensorView(&value, DType::F32, {1}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[npy] cannot create '/nonexistent/a.npy': No such file or directory");
  }
}

}  // namespace
}  // namespace tuckfold
