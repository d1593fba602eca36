// PNG with libpng: values as stored, 8 or 16 bits, without gamma correction. Palettes become RGB, a
// transparent colour becomes a channel. libpng reports errors by longjmp, which skips no
// destructors here.
#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include "base/fail.h"
#include "inputs/image.h"
#include "inputs/inflate.h"

namespace tuckfold {
namespace {

struct Reader {
  std::span<const std::byte> rest;
  char message[128] = {};
};

void read_some(png_structp png, png_bytep out, std::size_t count) {
  auto* reader = static_cast<Reader*>(::png_get_io_ptr(png));
  if (count > reader->rest.size()) ::png_error(png, "the file is truncated");
  std::memcpy(out, reader->rest.data(), count);
  reader->rest = reader->rest.subspan(count);
}

void note_error(png_structp png, png_const_charp message) {
  auto* reader = static_cast<Reader*>(::png_get_error_ptr(png));
  std::strncpy(reader->message, message, sizeof reader->message - 1);
  ::png_longjmp(png, 1);
}
void ignore_warning(png_structp, png_const_charp) {}

struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit Png(Reader& reader) {
    png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, note_error, ignore_warning);
    info = png == nullptr ? nullptr : ::png_create_info_struct(png);
    if (info == nullptr) throw std::bad_alloc();
    ::png_set_read_fn(png, &reader, read_some);
    ::png_set_user_limits(png, 1 << 20, 1 << 20);
    ::png_set_chunk_malloc_max(png, 1 << 20);
  }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  ~Png() { ::png_destroy_read_struct(&png, &info, nullptr); }
};

// Whether libpng succeeded. Objects that live across its calls belong to the caller.
bool read_header(Png& file, ImageInfo& found) {
  if (setjmp(png_jmpbuf(file.png)) != 0) return false;
  ::png_read_info(file.png, file.info);
  ::png_set_expand(file.png);
  ::png_set_interlace_handling(file.png);
  ::png_read_update_info(file.png, file.info);
  found.dtype = ::png_get_bit_depth(file.png, file.info) == 16 ? DType::U16 : DType::U8;
  found.channels = ::png_get_channels(file.png, file.info);
  found.rows = ::png_get_image_height(file.png, file.info);
  found.cols = ::png_get_image_width(file.png, file.info);
  return true;
}

bool read_rows(Png& file, png_bytepp rows) {
  if (setjmp(png_jmpbuf(file.png)) != 0) return false;
  ::png_read_image(file.png, rows);
  ::png_read_end(file.png, nullptr);
  return true;
}

[[noreturn]] void corrupt(std::string_view path, const Reader& reader) {
  fail(Errc::CorruptData,
       "[images] '{}' is a damaged PNG image: {}; copy it again, or leave it out", path,
       std::string_view(reader.message));
}

ImageInfo look(std::span<const std::byte> bytes, std::string_view path, std::uint64_t) {
  Reader reader{.rest = bytes};
  Png file(reader);
  ImageInfo found;
  if (!read_header(file, found)) corrupt(path, reader);
  // An index of one bit may become four bytes.
  if (found.bytes() / 32 > most_inflated(bytes.size())) {
    fail(Errc::CorruptData, "[images] '{}': {} bytes cannot be a PNG image of {}", path,
         bytes.size(), to_string(found.shape()));
  }
  return found;
}

void decode(std::span<const std::byte> bytes, std::string_view path, std::uint64_t,
            const ImageInfo& info, std::byte* out) {
  Reader reader{.rest = bytes};
  Png file(reader);
  ImageInfo found;
  if (!read_header(file, found)) corrupt(path, reader);
  if (info.dtype == DType::U16 && std::endian::native == std::endian::little) {
    ::png_set_swap(file.png);
  }
  std::vector<png_bytep> rows(static_cast<std::size_t>(info.rows));
  const std::size_t step = info.bytes() / rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = reinterpret_cast<png_bytep>(out + i * step);
  }
  if (!read_rows(file, rows.data())) corrupt(path, reader);
}

}  // namespace

const ImageFormat kPngImage = {.name = "PNG", .look = look, .decode = decode};

}  // namespace tuckfold
