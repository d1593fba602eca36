// TIFF files of several pages, in strips and in tiles, as microscopes write them.
#include <gtest/gtest.h>

#include <cstring>

#include "inputs/formats.h"
#include "inputs/image.h"
#include "inputs/source_fixture.h"

namespace tuckfold {
namespace {

struct Page {
  std::uint32_t width, height, channels = 1, kind = 0;
  bool tiled = false, apart = false;
  std::uint16_t first = 0;  // values count up from it, H x W x C
};

constexpr std::uint32_t kTile = 16;

std::uint16_t value_of(const Page& page, std::uint32_t y, std::uint32_t x, std::uint32_t c) {
  return static_cast<std::uint16_t>(page.first + (y * page.width + x) * page.channels + c);
}

// A strip or tile: rows and columns beyond the page are 0xabab.
std::string part_of(const Page& page, std::uint32_t top, std::uint32_t left, std::uint32_t rows,
                    std::uint32_t cols, std::uint32_t first, std::uint32_t channels) {
  std::string bytes;
  for (std::uint32_t y = top; y < top + rows; ++y) {
    for (std::uint32_t x = left; x < left + cols; ++x) {
      for (std::uint32_t c = first; c < first + channels; ++c) {
        const bool inside = y < page.height && x < page.width;
        const std::uint16_t value = inside ? value_of(page, y, x, c) : 0xabab;
        bytes.append(reinterpret_cast<const char*>(&value), 2);
      }
    }
  }
  return bytes;
}

class Tiff {
 public:
  explicit Tiff(bool wide) : wide_(wide) {
    bytes_ =
        wide ? std::string("II+\0\10\0\0\0", 8) + word(16) : "II*" + std::string(1, 0) + word(8);
    link_ = wide ? 8 : 4;
  }

  void add(const Page& page) {
    std::vector<std::uint64_t> places, sizes;
    const std::uint32_t planes = page.apart ? page.channels : 1;
    const std::uint32_t each = page.apart ? 1 : page.channels;
    const std::uint32_t rows = page.tiled ? kTile : page.height;
    const std::uint32_t cols = page.tiled ? kTile : page.width;
    for (std::uint32_t plane = 0; plane < planes; ++plane) {
      for (std::uint32_t top = 0; top < page.height; top += rows) {
        for (std::uint32_t left = 0; left < page.width; left += cols) {
          const std::string part = part_of(page, top, left, rows, cols, plane, each);
          places.push_back(bytes_.size());
          sizes.push_back(part.size());
          bytes_ += part;
        }
      }
    }
    std::vector<std::pair<int, std::vector<std::uint64_t>>> tags = {
        {254, {page.kind}},
        {256, {page.width}},
        {257, {page.height}},
        {258, std::vector<std::uint64_t>(page.channels, 16)},
        {259, {1}},
        {262, {1}},
        {277, {page.channels}},
        {284, {page.apart ? 2u : 1u}}};
    if (page.tiled) {
      for (const auto& tag : {std::pair(322, std::vector<std::uint64_t>{kTile}),
                              std::pair(323, std::vector<std::uint64_t>{kTile}),
                              std::pair(324, places), std::pair(325, sizes)}) {
        tags.push_back(tag);
      }
    } else {
      tags.insert(tags.begin() + 6, {273, places});
      tags.insert(tags.begin() + 8, {278, {page.height}});
      tags.insert(tags.begin() + 9, {279, sizes});
    }
    put(tags);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  static std::string number(std::uint64_t value, std::size_t size) {
    return {reinterpret_cast<const char*>(&value), size};
  }
  std::string word(std::uint64_t value) const { return number(value, wide_ ? 8 : 4); }

  void put(const std::vector<std::pair<int, std::vector<std::uint64_t>>>& tags) {
    std::string rows;
    for (const auto& [tag, values] : tags) {  // all of type LONG
      std::string list;
      for (const std::uint64_t value : values) list += number(value, 4);
      const std::size_t room = wide_ ? 8 : 4;
      if (list.size() > room) {
        const std::string place = word(bytes_.size());
        bytes_ += list;
        list = place;
      }
      list.resize(room, '\0');
      rows +=
          number(static_cast<std::uint64_t>(tag), 2) + number(4, 2) + word(values.size()) + list;
    }
    bytes_.replace(link_, wide_ ? 8 : 4, word(bytes_.size()));
    bytes_ += number(tags.size(), wide_ ? 8 : 2) + rows;
    link_ = bytes_.size();
    bytes_ += word(0);
  }

  bool wide_;
  std::string bytes_;
  std::size_t link_;
};

std::string stack(const std::vector<Page>& pages, bool wide = false) {
  Tiff tiff(wide);
  for (const Page& page : pages) tiff.add(page);
  return tiff.bytes();
}

bool has_tiff() {
  const std::string bytes = stack({{.width = 2, .height = 2}});
  try {
    look_at_image(std::as_bytes(std::span(bytes)), "a.tif");
  } catch (const Error& error) {
    return error.code() != Errc::Unsupported;
  }
  return true;
}

std::vector<std::uint16_t> planes_of(const std::vector<Page>& pages) {
  std::vector<std::uint16_t> values;
  for (const Page& page : pages) {
    for (std::uint32_t c = 0; c < page.channels; ++c) {
      for (std::uint32_t y = 0; y < page.height; ++y) {
        for (std::uint32_t x = 0; x < page.width; ++x) values.push_back(value_of(page, y, x, c));
      }
    }
  }
  return values;
}

TEST(TiffPages, PagesAreSamplesInStripsAndTiles) {
  if (!has_tiff()) GTEST_SKIP() << "without libtiff";
  const TempFolder folder;
  for (const bool wide : {false, true}) {
    for (const bool tiled : {false, true}) {
      for (const bool apart : {false, true}) {
        for (const std::uint32_t channels : {1u, 3u}) {
          std::vector<Page> pages;
          for (std::uint16_t i = 0; i < 4; ++i) {
            pages.push_back({.width = 37,
                             .height = 21,
                             .channels = channels,
                             .tiled = tiled,
                             .apart = apart,
                             .first = static_cast<std::uint16_t>(5000 * i)});
          }
          const auto source = open_paths({folder.write("a.tif", stack(pages, wide))});
          EXPECT_EQ(source->samples(), 4);
          EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U16, {channels, 21, 37}}));
          EXPECT_EQ(read_all<std::uint16_t>(*source, 0), planes_of(pages))
              << wide << tiled << apart << channels;
          EXPECT_EQ(source->about().files[2], "a.tif, page 2");
        }
      }
    }
  }
}

TEST(TiffPages, SmallerCopiesAndMasksAreNoSamples) {
  if (!has_tiff()) GTEST_SKIP() << "without libtiff";
  const TempFolder folder;
  const std::vector<Page> pages = {{.width = 8, .height = 6},
                                   {.width = 4, .height = 3, .kind = 1},
                                   {.width = 8, .height = 6, .kind = 2, .first = 700},
                                   {.width = 8, .height = 6, .kind = 4}};
  const auto source = open_paths({folder.write("a.tif", stack(pages))});
  EXPECT_EQ(source->samples(), 2);
  EXPECT_EQ(read_all<std::uint16_t>(*source, 0), planes_of({pages[0], pages[2]}));
}

TEST(TiffPages, PagesOfTwoSizesAreNamed) {
  if (!has_tiff()) GTEST_SKIP() << "without libtiff";
  const TempFolder folder;
  const Error error = error_of(
      {folder.write("a.tif", stack({{.width = 8, .height = 6}, {.width = 6, .height = 8}}))});
  EXPECT_EQ(error.code(), Errc::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("a.tif, page 1' is 1x8x6"), std::string::npos)
      << error.what();
}

TEST(TiffPages, AStackCutShortIsCorruptData) {
  if (!has_tiff()) GTEST_SKIP() << "without libtiff";
  const TempFolder folder;
  const std::string bytes = stack({{.width = 8, .height = 6}, {.width = 8, .height = 6}});
  const std::size_t one = stack({{.width = 8, .height = 6}}).size();
  for (std::size_t size = one; size < bytes.size(); size += 7) {
    EXPECT_EQ(error_of({folder.write("a.tif", bytes.substr(0, size))}).code(), Errc::CorruptData)
        << size << " of " << bytes.size();
  }
}

TEST(TiffPages, WhereAFileIsOneImageSeveralPagesAreRefused) {
  if (!has_tiff()) GTEST_SKIP() << "without libtiff";
  const std::string bytes = stack({{.width = 8, .height = 6}, {.width = 8, .height = 6}});
  try {
    look_at_image(std::as_bytes(std::span(bytes)), "a.tar:a.tif");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Unsupported) << error.what();
  }
}

TEST(TiffPages, DamagedStacksNeverCrash) {
  if (!has_tiff()) GTEST_SKIP() << "without libtiff";
  for (const bool tiled : {false, true}) {
    std::vector<Page> pages(2, {.width = 5, .height = 3, .tiled = tiled});
    expect_survives_damage(kImagesSource, stack(pages), true);
  }
}

}  // namespace
}  // namespace tuckfold
