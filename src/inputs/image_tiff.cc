// TIFF by libtiff: one page of strips, whole numbers or floats, in any number of channels.
#include <tiffio.h>

#include <algorithm>
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

// The file as libtiff sees it: bytes with a place in them.
struct Reader {
  std::span<const std::byte> bytes;
  std::uint64_t at = 0;
  char message[160] = {};
};

tmsize_t read_some(thandle_t handle, void* out, tmsize_t count) {
  auto* reader = static_cast<Reader*>(handle);
  if (count < 0 || reader->at > reader->bytes.size()) return 0;
  const auto now =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(count), reader->bytes.size() - reader->at);
  std::memcpy(out, reader->bytes.data() + reader->at, now);
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
  ::TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), tmsize_t{128} << 20);
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

ImageInfo look_at(const File& file, std::span<const std::byte> bytes, std::string_view path) {
  const auto refuse = [&](std::string_view what) {
    fail(Errc::Unsupported, "[images] '{}' is TIFF {}, which is not read; convert it", path, what);
  };
  const auto bits = field<std::uint16_t>(file, TIFFTAG_BITSPERSAMPLE);
  const auto format = field<std::uint16_t>(file, TIFFTAG_SAMPLEFORMAT);
  const std::optional<DType> dtype = dtype_by(bits, format);
  if (!dtype) refuse(fmt::format("of {} bits in sample format {}", bits, format));
  const auto colours = field<std::uint16_t>(file, TIFFTAG_PHOTOMETRIC);
  if (colours != PHOTOMETRIC_MINISBLACK && colours != PHOTOMETRIC_RGB) {
    refuse(fmt::format("in colours of kind {}", colours));
  }
  const auto packing = field<std::uint16_t>(file, TIFFTAG_COMPRESSION);
  if (packing != COMPRESSION_NONE && packing != COMPRESSION_LZW &&
      packing != COMPRESSION_ADOBE_DEFLATE && packing != COMPRESSION_DEFLATE &&
      packing != COMPRESSION_PACKBITS) {
    refuse(fmt::format("compressed by method {}", packing));
  }
  if (::TIFFIsTiled(file.get()) != 0) refuse("in tiles");
  if (::TIFFLastDirectory(file.get()) == 0) refuse("of several pages");
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

ImageInfo look(std::span<const std::byte> bytes, std::string_view path) {
  Reader reader{.bytes = bytes};
  const File file = open_tiff(reader, path);
  return look_at(file, bytes, path);
}

// Rows hold all channels, or each channel has rows of its own.
void decode(std::span<const std::byte> bytes, std::string_view path, const ImageInfo& info,
            std::byte* out) {
  Reader reader{.bytes = bytes};
  const File file = open_tiff(reader, path);
  const bool apart = field<std::uint16_t>(file, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
  const std::size_t value = size_bytes(info.dtype);
  const std::size_t row_bytes = info.bytes() / static_cast<std::size_t>(info.rows);
  const std::size_t line_bytes = apart ? static_cast<std::size_t>(info.cols) * value : row_bytes;
  if (::TIFFScanlineSize64(file.get()) != line_bytes) {
    std::snprintf(reader.message, sizeof reader.message, "its rows have another length");
    corrupt(path, reader);
  }
  std::vector<std::byte> line(line_bytes);
  const std::int64_t planes = apart ? info.channels : 1;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (std::int64_t row = 0; row < info.rows; ++row) {
      if (::TIFFReadScanline(file.get(), line.data(), static_cast<std::uint32_t>(row),
                             static_cast<std::uint16_t>(plane)) != 1) {
        corrupt(path, reader);
      }
      std::byte* to = out + static_cast<std::size_t>(row) * row_bytes;
      if (!apart) {
        std::memcpy(to, line.data(), line_bytes);
        continue;
      }
      for (std::int64_t col = 0; col < info.cols; ++col) {
        std::memcpy(to + static_cast<std::size_t>(col * info.channels + plane) * value,
                    line.data() + static_cast<std::size_t>(col) * value, value);
      }
    }
  }
}

}  // namespace

const ImageFormat kTiffImage = {.name = "TIFF", .look = look, .decode = decode};

}  // namespace tuckfold
