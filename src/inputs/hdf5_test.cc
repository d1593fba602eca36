// HDF5 files: written here by libhdf5, where there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "inputs/hdf5_writer.h"
#include "inputs/source_fixture.h"

#if __has_include(<hdf5.h>) && defined(TUCKFOLD_TEST_HDF5)
#include <hdf5.h>
#define HAVE_HDF5 1
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace tuckfold {
namespace {

#ifdef HAVE_HDF5

// Before the first call: at exit the library complains of damaged files that it could not close.
[[maybe_unused]] const herr_t kQuiet = ::H5dont_atexit();

class Writer {
 public:
  explicit Writer(const std::filesystem::path& path, H5F_libver_t version = H5F_LIBVER_EARLIEST) {
    const hid_t how = ::H5Pcreate(H5P_FILE_ACCESS);
    ::H5Pset_libver_bounds(how, version, H5F_LIBVER_LATEST);
    file_ = ::H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, how);
    ::H5Pclose(how);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { ::H5Fclose(file_); }

  template <class T>
  void add(const char* name, hid_t stored, hid_t memory, std::vector<hsize_t> axes,
           const std::vector<T>& values, bool deflated = false) {
    const hid_t space = ::H5Screate_simple(static_cast<int>(axes.size()), axes.data(), nullptr);
    const hid_t how = ::H5Pcreate(H5P_DATASET_CREATE);
    if (deflated) {
      axes[0] = 1;
      ::H5Pset_chunk(how, static_cast<int>(axes.size()), axes.data());
      ::H5Pset_deflate(how, 6);
    }
    const hid_t links = ::H5Pcreate(H5P_LINK_CREATE);
    ::H5Pset_create_intermediate_group(links, 1);
    const hid_t data = ::H5Dcreate2(file_, name, stored, space, links, how, H5P_DEFAULT);
    EXPECT_GE(::H5Dwrite(data, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    ::H5Dclose(data);
    ::H5Pclose(links);
    ::H5Pclose(how);
    ::H5Sclose(space);
  }
  hid_t file() const { return file_; }

 private:
  hid_t file_;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SourceHdf5, DatasetsAreArrays) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  std::vector<float> pixels(3 * 4 * 5);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i);
  for (const bool deflated : {false, true}) {
    {
      Writer writer(path);
      writer.add("images", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, {3, 4, 5, 1}, pixels, deflated);
      writer.add<int>("meta/label", H5T_STD_U16LE, H5T_NATIVE_INT, {3}, {1, 2, 65535});
      writer.add<int>("tiny", H5T_STD_I8LE, H5T_NATIVE_INT, {3}, {-1, 2, 3});
    }
    const auto source = open_paths({path, path});
    EXPECT_EQ(source->samples(), 6);
    ASSERT_EQ(source->arrays().size(), 3u);
    EXPECT_EQ(source->arrays()[0], (SourceArray{"images", DType::F32, {4, 5, 1}}));
    EXPECT_EQ(source->arrays()[1], (SourceArray{"meta/label", DType::U16, {}}));
    std::vector<float> middle(20);
    source->read(0, 1, 1, reinterpret_cast<std::byte*>(middle.data()));
    EXPECT_EQ(middle[0], 20.0f);
    EXPECT_EQ(read_all<std::uint16_t>(*source, 1),
              (std::vector<std::uint16_t>{1, 2, 65535, 1, 2, 65535}));
    EXPECT_EQ(source->arrays()[2].dtype, DType::I8);
    EXPECT_EQ(read_all<std::int8_t>(*source, 2)[0], -1);
  }
}

// An attribute of one text or of numbers.
void describe(hid_t object, const char* name, const std::string& text) {
  const hid_t type = ::H5Tcopy(H5T_C_S1);
  ::H5Tset_size(type, text.size() + 1);
  const hid_t space = ::H5Screate(H5S_SCALAR);
  const hid_t attribute = ::H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(::H5Awrite(attribute, type, text.c_str()), 0);
  ::H5Aclose(attribute);
  ::H5Sclose(space);
  ::H5Tclose(type);
}
template <class T>
void describe(hid_t object, const char* name, hid_t type, const std::vector<T>& values) {
  const hsize_t count = values.size();
  const hid_t space = ::H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = ::H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(::H5Awrite(attribute, type, values.data()), 0);
  ::H5Aclose(attribute);
  ::H5Sclose(space);
}

TEST(SourceHdf5, AttributesAreKeptAsFarAsTheyAreShort) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path);
    writer.add<int>("t", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2});
    describe(writer.file(), "title", "W\xc3\xa4rme \"x\"");
    const hid_t data = ::H5Dopen2(writer.file(), "t", H5P_DEFAULT);
    describe(data, "units", "K");
    describe(data, "latin1", "caf\xe9");  // no UTF-8
    describe(data, "DIMENSION_LABELS", "x");
    describe(data, "_FillValue", H5T_NATIVE_FLOAT, std::vector<float>{1e20f});
    describe(data, "levels", H5T_NATIVE_SHORT, std::vector<short>{-1, 2});
    describe(data, "missing", H5T_NATIVE_DOUBLE, std::vector<double>{NAN});
    describe(data, "scale", H5T_NATIVE_DOUBLE, std::vector<double>{100000, -0.0});
    describe(data, "many", H5T_NATIVE_INT, std::vector<int>(300));  // too many
    ::H5Dclose(data);
  }
  const auto source = open_paths({path}, {.rename = {{"t", "x"}}});
  EXPECT_EQ(source->about().json(true),
            R"_({"attributes": {"title": "Wärme \"x\""}, "array_attributes": {"x": )_"
            R"_({"_FillValue": 1e+20, "levels": [-1, 2], "missing": "nan", )_"
            R"_("scale": [100000.0, -0.0], "units": "K"}}, "array_attribute_types": {"x": )_"
            R"_({"_FillValue": "f32", "levels": "i16", "missing": "f64", "scale": "f64"}}, )_"
            R"_("attributes_left_out": 2})_");
}

TEST(SourceHdf5, AttributesHaveABound) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path);
    writer.add<int>("t", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2});
    for (const char* name : {"a", "b", "c", "d"}) {
      describe(writer.file(), name, std::string(30000, 'x'));
    }
    describe(writer.file(), "e", "short");
  }
  const SourceAbout about = open_paths({path})->about();
  EXPECT_EQ(about.attributes_left_out, 2);
  EXPECT_LT(about.json(true).size(), 70000u);
  EXPECT_NE(about.json(true).find(R"("e": "short")"), std::string::npos);
}

TEST(SourceHdf5, EveryDatasetIsListed) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path);
    writer.add<int>("group/x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2});
    writer.add<int>("y", H5T_STD_I32LE, H5T_NATIVE_INT, {3}, {1, 2, 3});
    ::H5Lcreate_external("other.h5", "/q", writer.file(), "away", H5P_DEFAULT, H5P_DEFAULT);
  }
  const InputListing listing = list_input(path, {});
  EXPECT_EQ(listing.format, "hdf5");
  ASSERT_EQ(listing.arrays.size(), 3u);
  EXPECT_EQ(listing.arrays[0].name, "away");
  EXPECT_FALSE(listing.arrays[0].refused.empty());
  EXPECT_EQ(listing.arrays[1].name, "group/x");
  EXPECT_EQ(listing.arrays[1].bytes, 8u);
  EXPECT_EQ(listing.arrays[2].shape, Shape({3}));
  const Error error = error_of({path}, {.arrays = {"group/x", "y"}});
  EXPECT_NE(std::string(error.what()).find("--select: 'y' (i32 3), 'group/x' (i32 2)"),
            std::string::npos)
      << error.what();
}

TEST(SourceHdf5, U64KeepsEveryValue) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  { Writer(path).add<std::uint64_t>("x", H5T_STD_U64BE, H5T_NATIVE_UINT64, {2}, {7, UINT64_MAX}); }
  const auto source = open_paths({path});
  EXPECT_EQ(source->arrays()[0].dtype, DType::U64);
  EXPECT_EQ(read_all<std::uint64_t>(*source, 0), (std::vector<std::uint64_t>{7, UINT64_MAX}));
}

// Enumerations of a byte: FALSE and TRUE are bools, as h5py writes them; others are their numbers.
TEST(SourceHdf5, EnumerationsOfFalseAndTrueAreBools) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  const auto enumeration = [](std::initializer_list<std::pair<const char*, std::int8_t>> members) {
    const hid_t type = ::H5Tenum_create(H5T_STD_I8LE);
    for (const auto& [name, value] : members) ::H5Tenum_insert(type, name, &value);
    return type;
  };
  const hid_t bools = enumeration({{"FALSE", 0}, {"TRUE", 1}});
  const hid_t kinds = enumeration({{"RED", 0}, {"GREEN", 1}, {"BLUE", 2}});
  {
    Writer writer(path);
    writer.add<std::int8_t>("flag", bools, bools, {3}, {1, 0, 1});
    writer.add<std::int8_t>("kind", kinds, kinds, {3}, {2, 0, 1});
  }
  ::H5Tclose(bools);
  ::H5Tclose(kinds);
  const auto source = open_paths({path});
  EXPECT_EQ(source->arrays()[0], (SourceArray{"flag", DType::Bool, {}}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0), (std::vector<std::uint8_t>{1, 0, 1}));
  EXPECT_EQ(source->arrays()[1], (SourceArray{"kind", DType::I8, {}}));
  EXPECT_EQ(read_all<std::int8_t>(*source, 1), (std::vector<std::int8_t>{2, 0, 1}));
}

TEST(SourceHdf5, WhatDoesNotFitIsNamed) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  const hid_t text = ::H5Tcopy(H5T_C_S1);
  {
    Writer writer(path);
    writer.add<char>("names", text, text, {2}, {'a', 'b'});
    writer.add<int>("x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2});
    writer.add<int>("y", H5T_STD_I32LE, H5T_NATIVE_INT, {3}, {1, 2, 3});
  }
  ::H5Tclose(text);
  const Error strings = error_of({path});
  EXPECT_EQ(strings.code(), Errc::Unsupported);
  EXPECT_NE(std::string(strings.what()).find("'names'"), std::string::npos) << strings.what();
  const Error longer = error_of({path}, {.arrays = {"x", "y"}});
  EXPECT_NE(std::string(longer.what()).find("'x' has 2 and 'y' has 3"), std::string::npos)
      << longer.what();
  EXPECT_EQ(error_of({path}, {.arrays = {"z"}}).code(), Errc::InvalidArgument);
  EXPECT_EQ(read_all<std::int32_t>(*open_paths({path}, {.arrays = {"y"}}), 0)[2], 3);
}

TEST(SourceHdf5, TruncatedFilesAreCorruptData) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  { Writer(path).add<int>("x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2}); }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  EXPECT_EQ(error_of({path}).code(), Errc::CorruptData);
  EXPECT_EQ(error_of({folder.write("b.h5", "no such file")}).code(), Errc::CorruptData);
}

// Every byte that is not one of the values, with one bit of it flipped. The later format has
// checksums of all that describes values, so that no array can be lost without a word.
TEST(SourceHdf5, ArraysThatCannotBeOpenedAreErrors) {
#ifdef __SANITIZE_ADDRESS__
  const __lsan::ScopedDisabler libhdf5_forgets_damaged_objects;
#endif
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  const std::vector<std::uint8_t> values(640, 0xa7);
  {
    Writer writer(path, H5F_LIBVER_LATEST);
    writer.add("label", H5T_STD_U8LE, H5T_NATIVE_UCHAR, {40}, values);
    writer.add("x", H5T_STD_U8LE, H5T_NATIVE_UCHAR, {40, 16}, values);
    writer.add("g/y", H5T_STD_U8LE, H5T_NATIVE_UCHAR, {40, 16}, values);
  }
  const std::string good = read_file(path);
  int refused = 0, named = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    if (good[i] == 0 || good[i] == '\xa7') continue;
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    const auto damaged = folder.write("b.h5", bad);
    try {
      const std::unique_ptr<Source> source = open_paths({damaged}, {.format = "hdf5"});
      std::vector<std::string> names;
      for (const SourceArray& array : source->arrays()) names.push_back(array.name);
      EXPECT_EQ(names, (std::vector<std::string>{"g/y", "label", "x"})) << "byte " << i;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(error.code() == Errc::CorruptData || error.code() == Errc::Unsupported) << text;
      ++refused;
      named += text.find("'x' cannot") != text.npos || text.find("'g/y' cannot") != text.npos ||
                       text.find("'g' cannot") != text.npos ||
                       text.find("'label' cannot") != text.npos
                   ? 1
                   : 0;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(named, 50);
}

TEST(SourceHdf5, OthersCanBeSelectedBesideABrokenArray) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path, H5F_LIBVER_LATEST);
    writer.add<int>("x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2});
    writer.add<int>("y", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {3, 4});
  }
  std::string bytes = read_file(path);
  const std::size_t last = bytes.rfind("OHDR");  // that of y: headers are in the order of creation
  bytes[last + 4] = 7;                           // its version
  folder.write("a.h5", bytes);
  for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"y"}, {"x", "y"}}) {
    const Error error = error_of({path}, {.arrays = names});
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_NE(std::string(error.what()).find("'y' cannot be opened"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(read_all<std::int32_t>(*open_paths({path}, {.arrays = {"x"}}), 0)[1], 2);
  const std::vector<InputArray> listed = list_input(path, {}).arrays;
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1].name, "y");
  EXPECT_NE(listed[1].refused.find("cannot be opened"), std::string::npos);
}

TEST(SourceHdf5, ADatasetWithoutValuesIsRefused) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path);
    const hid_t none = ::H5Screate(H5S_NULL);
    ::H5Dclose(::H5Dcreate2(writer.file(), "none", H5T_STD_I32LE, none, H5P_DEFAULT, H5P_DEFAULT,
                            H5P_DEFAULT));
    ::H5Sclose(none);
  }
  const Error error = error_of({path});
  EXPECT_EQ(error.code(), Errc::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("'none' has no values"), std::string::npos)
      << error.what();
}

TEST(SourceHdf5, WhatLeadsToOtherFilesIsRefusedUnlessAllowed) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5", other = folder.path() / "b.h5",
             values = folder.path() / "values.bin";
  { Writer(other).add<int>("y", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {5, 6}); }
  folder.write("values.bin", std::string("\1\0\0\0\2\0\0\0", 8));
  const auto make = [&](const auto& add) {
    Writer writer(path);
    writer.add<int>("x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {1, 2});
    add(writer.file());
  };
  const hsize_t two = 2;
  const hid_t space = ::H5Screate_simple(1, &two, nullptr);
  const auto dataset = [&](hid_t file, hid_t how) {
    ::H5Dclose(::H5Dcreate2(file, "y", H5T_STD_I32LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
    ::H5Pclose(how);
  };
  const auto check = [&](int first) {
    for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"y"}}) {
      const Error error = error_of({path}, {.arrays = names});
      EXPECT_EQ(error.code(), Errc::Unsupported);
      EXPECT_NE(std::string(error.what()).find("'y'"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("--allow-external"), std::string::npos);
    }
    EXPECT_EQ(open_paths({path}, {.arrays = {"x"}})->samples(), 2);
    const auto source = open_paths({path}, {.allow_external = true});
    ASSERT_EQ(source->arrays().size(), 2u);
    EXPECT_EQ(read_all<std::int32_t>(*source, 1)[0], first);
  };
  make([&](hid_t file) {
    const hid_t how = ::H5Pcreate(H5P_DATASET_CREATE);
    ::H5Pset_external(how, values.c_str(), 0, 8);
    dataset(file, how);
  });
  check(1);
  make([&](hid_t file) {
    const hid_t how = ::H5Pcreate(H5P_DATASET_CREATE);
    ::H5Pset_virtual(how, space, other.c_str(), "y", space);
    dataset(file, how);
  });
  check(5);
  make([&](hid_t file) {
    ::H5Lcreate_external(other.c_str(), "y", file, "y", H5P_DEFAULT, H5P_DEFAULT);
  });
  check(5);
  make([&](hid_t file) {  // a link to the group that has it
    ::H5Lcreate_external(other.c_str(), "/", file, "z", H5P_DEFAULT, H5P_DEFAULT);
  });
  EXPECT_EQ(error_of({path}).code(), Errc::Unsupported);
  EXPECT_EQ(error_of({path}, {.arrays = {"z/y"}}).code(), Errc::Unsupported);
  EXPECT_EQ(read_all<std::int32_t>(*open_paths({path}, {.arrays = {"z/y"}, .allow_external = true}),
                                   0)[1],
            6);
  ::H5Sclose(space);
}

TEST(SourceHdf5, GroupsNestSoDeepAndNoDeeper) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  for (const int deep : {30, 33, 2000}) {
    std::string name;
    for (int i = 0; i < std::min(deep, 200); ++i) name += "g/";
    {
      Writer writer(path);
      hid_t group = ::H5Gopen2(writer.file(), "/", H5P_DEFAULT);
      for (int i = 0; i < deep; ++i) {
        const hid_t inner = ::H5Gcreate2(group, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        ::H5Gclose(group);
        group = inner;
      }
      ::H5Gclose(group);
      writer.add<int>((name + "x").c_str(), H5T_STD_I32LE, H5T_NATIVE_INT, {1}, {7});
    }
    if (deep <= 30) {
      EXPECT_EQ(read_all<std::int32_t>(*open_paths({path}), 0)[0], 7);
    } else {
      EXPECT_EQ(error_of({path}).code(), Errc::Unsupported);
      EXPECT_EQ(open_paths({path}, {.arrays = {name + "x"}})->samples(), 1);
    }
  }
}

TEST(SourceHdf5, GroupsThatHoldThemselvesEnd) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path);
    writer.add<int>("g/x", H5T_STD_I32LE, H5T_NATIVE_INT, {1}, {7});
    ::H5Lcreate_hard(writer.file(), "g", writer.file(), "g/again", H5P_DEFAULT, H5P_DEFAULT);
    ::H5Lcreate_soft("/nowhere", writer.file(), "soft", H5P_DEFAULT, H5P_DEFAULT);
  }
  ASSERT_EQ(open_paths({path})->arrays().size(), 1u);
}

TEST(Hdf5Writer, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  const std::vector<std::uint16_t> halves = {0x3c00, 0xfc00, 0x7e01, 0x0001, 0x8000, 0x7bff};
  const std::vector<std::int64_t> wide = {INT64_MIN, -1, INT64_MAX};
  {
    Hdf5Writer writer(path, "a.h5");
    writer.begin("group/half", DType::F16, {3, 2});
    writer.add(std::as_bytes(std::span(halves).first(2)));
    writer.add(std::as_bytes(std::span(halves).subspan(2)));
    writer.begin("wide", DType::I64, {3});
    writer.add(std::as_bytes(std::span(wide)));
    writer.begin("none", DType::F32, {3, 0});
    EXPECT_THROW(writer.begin("b", DType::BF16, {3}), Error);
    EXPECT_THROW(writer.begin("wide/inner", DType::U8, {3}), Error);
    writer.finish();
  }
  const auto source = open_paths({path}, {.arrays = {"group/half", "wide"}});
  EXPECT_EQ(source->samples(), 3);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"group/half", DType::F16, {2}}));
  EXPECT_EQ(read_all<std::uint16_t>(*source, 0), halves);
  EXPECT_EQ(read_all<std::int64_t>(*source, 1), wide);
}

// Adds an attribute to a dataset.
template <class T>
void add_attribute(hid_t file, const char* dataset, const char* name, hid_t type,
                   const std::vector<T>& values) {
  const hid_t data = ::H5Dopen2(file, dataset, H5P_DEFAULT);
  const hsize_t count = values.size();
  const hid_t space = ::H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = ::H5Acreate2(data, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  ::H5Awrite(attribute, type, values.data());
  ::H5Aclose(attribute);
  ::H5Sclose(space);
  ::H5Dclose(data);
}

TEST(SourceHdf5, FillValuesAreThoseOfTheDtype) {
  const TempFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Writer writer(path);
    writer.add<float>("f", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2}, {1, 2});
    writer.add<std::uint16_t>("u", H5T_STD_U16LE, H5T_NATIVE_USHORT, {2}, {1, 2});
    writer.add<std::int16_t>("i", H5T_STD_I16LE, H5T_NATIVE_SHORT, {2}, {1, 2});
    writer.add<float>("none", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2}, {1, 2});
    // Of another type, as many tools write them, and twice.
    add_attribute<double>(writer.file(), "f", "_FillValue", H5T_NATIVE_DOUBLE, {1e20});
    add_attribute<float>(writer.file(), "f", "missing_value", H5T_NATIVE_FLOAT, {1e20f, -999});
    // 1e20 is no number of the dtype; a whole number of another width is.
    add_attribute<double>(writer.file(), "u", "missing_value", H5T_NATIVE_DOUBLE, {1e20});
    add_attribute<int>(writer.file(), "u", "_FillValue", H5T_NATIVE_INT, {65535});
    add_attribute<int>(writer.file(), "i", "_FillValue", H5T_NATIVE_INT, {-32767});
    // No double is 2^63 - 1, and the nearest is another number.
    writer.add<std::int64_t>("l", H5T_STD_I64LE, H5T_NATIVE_INT64, {2}, {1, 2});
    add_attribute<std::int64_t>(
        writer.file(), "l", "missing_value", H5T_NATIVE_INT64,
        {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()});
    add_attribute<char>(writer.file(), "none", "units", H5T_NATIVE_CHAR, {'K'});
  }
  const auto source = open_paths({path});
  const auto fill = [&](std::string_view name) {
    return std::ranges::find(source->arrays(), name, &SourceArray::name)->fill;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(fill("f"), (std::vector<FillValue>{{double{1e20f}}, {-999}, {nan}}));
  EXPECT_EQ(fill("u"), (std::vector<FillValue>{{65535}}));
  EXPECT_EQ(fill("i"), (std::vector<FillValue>{{-32767}}));
  EXPECT_EQ(fill("l"), (std::vector<FillValue>{{-0x1p63}}));
  EXPECT_TRUE(fill("none").empty());
}

TEST(SourceHdf5, RealFilesAreRead) {
  const std::filesystem::path path = real_data("sci_float/A1B_north_america.nc");
  if (path.empty()) GTEST_SKIP() << "no sci_float/A1B_north_america.nc under TUCKFOLD_DATA";
  EXPECT_EQ(error_of({path}).code(), Errc::InvalidArgument);  // has coordinates, too
  const auto source = open_paths({path}, {.arrays = {"time", "air_temperature"}});
  EXPECT_EQ(source->samples(), 240);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"time", DType::F64, {}}));
  const SourceArray& field = source->arrays()[1];
  EXPECT_EQ(field, (SourceArray{"air_temperature", DType::F32, {37, 49}, field.fill}));
  for (const float kelvin : read_all<float>(*source, 1)) {
    ASSERT_GT(kelvin, 200.0f);
    ASSERT_LT(kelvin, 350.0f);
  }
}

#else

TEST(SourceHdf5, WithoutTheLibraryTheFormatSaysSo) {
  const TempFolder folder;
  const Error error = error_of({folder.write("a.h5", "\x89HDF\r\n\x1a\n")});
  EXPECT_EQ(error.code(), Errc::Unsupported);
  EXPECT_NE(std::string(error.what()).find("install libhdf5-dev"), std::string::npos)
      << error.what();
}

#endif

}  // namespace
}  // namespace tuckfold
