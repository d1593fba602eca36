// TIFF by libtiff: pages of strips or tiles, whole numbers or floats, in any number of channels.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "inputs/image.h"
#include "inputs/inflate.h"

namespace tuckfold {
namespace {

constexpr tmsize_t kMostAtOnce = tmsize_t{128} << 20;  // bytes

// The file as libtiff sees it: bytes with a place in them. Its header leads to the page that is asked
// for, since libtiff would count all pages before it.
struct Reader {
  explicit Reader(std::span<const std::byte> all, std::uint64_t page = kOnlyPage) : bytes(all) {
    std::memcpy(head.data(), bytes.data(), std::min(head.size(), bytes.size()));
    little = head[0] == std::byte{'I'};
    wide = head[little ? 2 : 3] == std::byte{43};
    if (page == kOnlyPage) return;
    const std::size_t size = wide ? 8 : 4;
    for (std::size_t i = 0; i < size; ++i) {
      head[size + (little ? i : size - 1 - i)] = static_cast<std::byte>(page >> (8 * i));
    }
  }

  std::span<const std::byte> bytes;
  std::array<std::byte, 16> head{};
  bool little = true, wide = false;  // wide: BigTIFF
  std::uint64_t at = 0;
  char message[160] = {};
};

tmsize_t read_some(thandle_t handle, void* out, tmsize_t count) {
  auto* reader = static_cast<Reader*>(handle);
  if (count < 0 || reader->at > reader->bytes.size()) return 0;
  const auto now =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(count), reader->bytes.size() - reader->at);
  std::memcpy(out, reader->bytes.data() + reader->at, now);
  if (reader->at < reader->head.size()) {
    std::memcpy(out, reader->head.data() + reader->at,
                std::min<std::uint64_t>(now, reader->head.size() - reader->at));
  }
  reader->at += now;
  return static_cast<tmsize_t>(now);
}
tmsize_t write_none(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek(thandle_t handle, toff_t offset, int whence) {
  auto* reader = static_cast<Reader*>(handle);
  const std::uint64_t base = whence == SEEK_SET   ? 0
                             : whence == SEEK_CUR ? reader->at
                                                  : reader->bytes.size();
  return reader->at = base + offset;
}
int close_none(thandle_t) { return 0; }
toff_t size(thandle_t handle) { return static_cast<Reader*>(handle)->bytes.size(); }

int note_error(TIFF*, void* user, const char*, const char* format, va_list arguments) {
  auto* reader = static_cast<Reader*>(user);
  std::vsnprintf(reader->message, sizeof reader->message, format, arguments);
  return 1;  // said: not to be printed as well
}
int ignore_warning(TIFF*, void*, const char*, const char*, va_list) { return 1; }

struct Closer {
  void operator()(TIFF* file) const { ::TIFFClose(file); }
  void operator()(TIFFOpenOptions* options) const { ::TIFFOpenOptionsFree(options); }
};
using File = std::unique_ptr<TIFF, Closer>;

[[noreturn]] void corrupt(std::string_view path, const Reader& reader) {
  fail(Errc::CorruptData,
       "[images] '{}' is a damaged TIFF image: {}; copy it again, or leave it out", path,
       std::string_view(reader.message));
}

File open_tiff(Reader& reader, std::string_view path) {
  const std::unique_ptr<TIFFOpenOptions, Closer> options(::TIFFOpenOptionsAlloc());
  if (!options) throw std::bad_alloc();
  ::TIFFOpenOptionsSetErrorHandlerExtR(options.get(), note_error, &reader);
  ::TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore_warning, nullptr);
  ::TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostAtOnce);
  // "m": libtiff is not to map what is memory already.
  File file(::TIFFClientOpenExt("", "rm", &reader, read_some, write_none, seek, close_none, size,
                                nullptr, nullptr, options.get()));
  if (!file) corrupt(path, reader);
  return file;
}

template <class T>
T field(const File& file, std::uint32_t tag) {
  T value{};
  ::TIFFGetFieldDefaulted(file.get(), tag, &value);
  return value;
}

std::optional<DType> dtype_by(unsigned bits, unsigned format) {
  if (format == SAMPLEFORMAT_UINT) {
    if (bits == 8) return DType::U8;
    if (bits == 16) return DType::U16;
    if (bits == 32) return DType::U32;
  } else if (format == SAMPLEFORMAT_INT) {
    if (bits == 8) return DType::I8;
    if (bits == 16) return DType::I16;
    if (bits == 32) return DType::I32;
  } else if (format == SAMPLEFORMAT_IEEEFP) {
    if (bits == 16) return DType::F16;
    if (bits == 32) return DType::F32;
    if (bits == 64) return DType::F64;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(std::string_view path, std::string_view what) {
  fail(Errc::Unsupported,
       "[images] '{}' is TIFF {}, which is not read; convert it, in Python as "
       "numpy.save('images.npy', tifffile.imread(FILE))",
       path, what);
}

// Whether a page is a smaller copy of another, or its mask.
bool is_copy(const File& file) {
  const auto kind = field<std::uint32_t>(file, TIFFTAG_SUBFILETYPE);
  return (kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) != 0;
}

// How many images the description of a page says that there are: ImageJ writes large stacks as one
// page, and their other images after it.
std::int64_t images_said(const File& file) {
  const char* text = nullptr;
  if (::TIFFGetField(file.get(), TIFFTAG_IMAGEDESCRIPTION, &text) != 1 || text == nullptr) return 1;
  const std::string_view said(text);
  constexpr std::string_view kKey = "\nimages=";
  const std::size_t at = said.starts_with("ImageJ=") ? said.find(kKey) : said.npos;
  std::int64_t count = 1;
  if (at != said.npos) {
    std::from_chars(said.data() + at + kKey.size(), said.data() + said.size(), count);
  }
  return count;
}

// Whether the file has the link to the next page after this one: libtiff takes one that is cut off
// for the end.
bool has_link(const Reader& reader, std::uint64_t page) {
  const auto number = [&](std::uint64_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t place = reader.little ? size - 1 - i : i;
      value = value << 8 | std::to_integer<std::uint64_t>(reader.bytes[at + place]);
    }
    return value;
  };
  const std::uint64_t all = reader.bytes.size(), count = reader.wide ? 8 : 2;
  const std::uint64_t row = reader.wide ? 20 : 12, link = reader.wide ? 8 : 4;
  if (page > all || all - page < count + link) return false;
  return number(page, count) <= (all - page - count - link) / row;
}

std::vector<std::uint64_t> pages(std::span<const std::byte> bytes, std::string_view path) {
  constexpr std::size_t kMostPages = std::size_t{1} << 20;
  Reader reader(bytes);
  const File file = open_tiff(reader, path);
  std::vector<std::uint64_t> found;
  const std::int64_t said = images_said(file);
  for (;;) {
    if (found.size() == kMostPages) refuse(path, fmt::format("of over {} pages", kMostPages));
    if (found.empty() || !is_copy(file)) found.push_back(::TIFFCurrentDirOffset(file.get()));
    std::snprintf(reader.message, sizeof reader.message, "no page follows page %zu",
                  found.size() - 1);
    if (!has_link(reader, ::TIFFCurrentDirOffset(file.get()))) corrupt(path, reader);
    if (::TIFFLastDirectory(file.get()) != 0) break;
    if (::TIFFReadDirectory(file.get()) != 1) corrupt(path, reader);
  }
  if (found.size() == 1 && said > 1) {
    refuse(path, fmt::format("of ImageJ with {} images in one page", said));
  }
  return found;
}

ImageInfo look_at(const File& file, std::span<const std::byte> bytes, std::string_view path) {
  const auto bits = field<std::uint16_t>(file, TIFFTAG_BITSPERSAMPLE);
  const auto format = field<std::uint16_t>(file, TIFFTAG_SAMPLEFORMAT);
  const std::optional<DType> dtype = dtype_by(bits, format);
  if (!dtype) refuse(path, fmt::format("of {} bits in sample format {}", bits, format));
  const auto colours = field<std::uint16_t>(file, TIFFTAG_PHOTOMETRIC);
  if (colours != PHOTOMETRIC_MINISBLACK && colours != PHOTOMETRIC_RGB) {
    refuse(path, fmt::format("in colours of kind {}", colours));
  }
  const auto packing = field<std::uint16_t>(file, TIFFTAG_COMPRESSION);
  if (packing != COMPRESSION_NONE && packing != COMPRESSION_LZW &&
      packing != COMPRESSION_ADOBE_DEFLATE && packing != COMPRESSION_DEFLATE &&
      packing != COMPRESSION_PACKBITS) {
    refuse(path, fmt::format("compressed by method {}", packing));
  }
  if (field<std::uint32_t>(file, TIFFTAG_IMAGEDEPTH) > 1) refuse(path, "of volumes");
  const ImageInfo found{.dtype = *dtype,
                        .channels = field<std::uint16_t>(file, TIFFTAG_SAMPLESPERPIXEL),
                        .rows = field<std::uint32_t>(file, TIFFTAG_IMAGELENGTH),
                        .cols = field<std::uint32_t>(file, TIFFTAG_IMAGEWIDTH)};
  // LZW makes at most 4096 bytes of a code of 12 bits, which is more than deflate does.
  const std::uint64_t most = 4 * most_inflated(bytes.size()) / size_bytes(*dtype);
  const std::uint64_t pixels = std::uint64_t{field<std::uint32_t>(file, TIFFTAG_IMAGELENGTH)} *
                               field<std::uint32_t>(file, TIFFTAG_IMAGEWIDTH);
  if (pixels == 0 || found.channels == 0 ||
      pixels > most / static_cast<std::uint64_t>(found.channels)) {
    fail(Errc::CorruptData, "[images] '{}': {} bytes cannot be a TIFF image of {}x{}x{}", path,
         bytes.size(), found.channels, found.rows, found.cols);
  }
  return found;
}

ImageInfo look(std::span<const std::byte> bytes, std::string_view path, std::uint64_t page) {
  Reader reader(bytes, page);
  const File file = open_tiff(reader, path);
  if (page == kOnlyPage && pages(bytes, path).size() > 1) {
    fail(Errc::Unsupported,
         "[images] '{}' is TIFF of several pages, and here a file is one image; name the file "
         "itself",
         path);
  }
  return look_at(file, bytes, path);
}

// Where values go. A row holds all channels, or each channel has rows of its own.
struct Placed {
  const ImageInfo& info;
  bool apart;
  std::byte* out;

  std::size_t value() const { return size_bytes(info.dtype); }
  std::int64_t planes() const { return apart ? info.channels : 1; }
  std::size_t bytes_of(std::int64_t cols) const {
    return static_cast<std::size_t>(apart ? cols : cols * info.channels) * value();
  }
  void put(std::int64_t plane, std::int64_t row, std::int64_t col, std::int64_t cols,
           const std::byte* from) const {
    std::byte* to =
        out + static_cast<std::size_t>((row * info.cols + col) * info.channels) * value();
    if (!apart) {
      std::memcpy(to, from, bytes_of(cols));
      return;
    }
    for (std::int64_t i = 0; i < cols; ++i) {
      std::memcpy(to + static_cast<std::size_t>(i * info.channels + plane) * value(),
                  from + static_cast<std::size_t>(i) * value(), value());
    }
  }
};

bool decode_rows(const File& file, const Placed& placed) {
  std::vector<std::byte> line(placed.bytes_of(placed.info.cols));
  if (::TIFFScanlineSize64(file.get()) != line.size()) return false;
  for (std::int64_t plane = 0; plane < placed.planes(); ++plane) {
    for (std::int64_t row = 0; row < placed.info.rows; ++row) {
      if (::TIFFReadScanline(file.get(), line.data(), static_cast<std::uint32_t>(row),
                             static_cast<std::uint16_t>(plane)) != 1) {
        return false;
      }
      placed.put(plane, row, 0, placed.info.cols, line.data());
    }
  }
  return true;
}

bool decode_tiles(const File& file, const Placed& placed) {
  const std::int64_t width = field<std::uint32_t>(file, TIFFTAG_TILEWIDTH);
  const std::int64_t height = field<std::uint32_t>(file, TIFFTAG_TILELENGTH);
  if (width == 0 || height == 0) return false;
  const std::uint64_t bytes = ::TIFFTileSize64(file.get()), row_bytes = placed.bytes_of(width);
  if (bytes > kMostAtOnce || bytes / static_cast<std::uint64_t>(height) != row_bytes) return false;
  std::vector<std::byte> tile(bytes);
  const ImageInfo& info = placed.info;
  for (std::int64_t plane = 0; plane < placed.planes(); ++plane) {
    for (std::int64_t top = 0; top < info.rows; top += height) {
      for (std::int64_t left = 0; left < info.cols; left += width) {
        if (::TIFFReadTile(file.get(), tile.data(), static_cast<std::uint32_t>(left),
                           static_cast<std::uint32_t>(top), 0,
                           static_cast<std::uint16_t>(plane)) < 0) {
          return false;
        }
        for (std::int64_t row = 0; row < std::min(height, info.rows - top); ++row) {
          placed.put(plane, top + row, left, std::min(width, info.cols - left),
                     tile.data() + static_cast<std::uint64_t>(row) * row_bytes);
        }
      }
    }
  }
  return true;
}

void decode(std::span<const std::byte> bytes, std::string_view path, std::uint64_t page,
            const ImageInfo& info, std::byte* out) {
  Reader reader(bytes, page);
  const File file = open_tiff(reader, path);
  const Placed placed{
      info, field<std::uint16_t>(file, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE, out};
  std::snprintf(reader.message, sizeof reader.message, "its rows or tiles have another size");
  const bool tiled = ::TIFFIsTiled(file.get()) != 0;
  if (!(tiled ? decode_tiles(file, placed) : decode_rows(file, placed))) corrupt(path, reader);
}

}  // namespace

const ImageFormat kTiffImage = {.name = "TIFF", .look = look, .decode = decode, .pages = pages};

}  // namespace tuckfold
