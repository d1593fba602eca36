// JPEG with libjpeg-turbo: grey or RGB. The library reports errors by longjmp, which skips no
// destructors here, and its messages are kept instead of printed.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <string>

// clang-format off: the first of the two needs what is above, the second needs the first
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

#include "base/fail.h"
#include "inputs/image.h"

namespace tuckfold {
namespace {

struct Jpeg {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX] = {};
  bool truncated = false;

  Jpeg() {
    decoder.err = ::jpeg_std_error(&errors);
    decoder.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      auto* self = static_cast<Jpeg*>(common->client_data);
      common->err->format_message(common, self->message);
      std::longjmp(self->back, 1);
    };
    // If data are missing, the library warns and fills the rest with grey.
    errors.emit_message = [](j_common_ptr common, int level) {
      auto* self = static_cast<Jpeg*>(common->client_data);
      const int code = common->err->msg_code;
      if (level >= 0 || (code != JWRN_JPEG_EOF && code != JWRN_HIT_MARKER)) return;
      self->truncated = true;
      common->err->format_message(common, self->message);
    };
    errors.output_message = [](j_common_ptr) {};
  }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
  ~Jpeg() { ::jpeg_destroy_decompress(&decoder); }
};

// Whether the library succeeded. Objects that live across its calls belong to the caller.
bool read_header(Jpeg& file, std::span<const std::byte> bytes) {
  if (setjmp(file.back) != 0) return false;
  ::jpeg_create_decompress(&file.decoder);
  ::jpeg_mem_src(&file.decoder, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
  ::jpeg_read_header(&file.decoder, TRUE);
  return true;
}

bool read_rows(Jpeg& file, std::byte* out, std::size_t step) {
  if (setjmp(file.back) != 0) return false;
  ::jpeg_start_decompress(&file.decoder);
  while (file.decoder.output_scanline < file.decoder.output_height) {
    JSAMPROW row = reinterpret_cast<JSAMPROW>(out + file.decoder.output_scanline * step);
    ::jpeg_read_scanlines(&file.decoder, &row, 1);
  }
  ::jpeg_finish_decompress(&file.decoder);
  return !file.truncated;
}

[[noreturn]] void corrupt(std::string_view path, const Jpeg& file) {
  fail(Errc::CorruptData,
       "[images] '{}' is a damaged JPEG image: {}; copy it again, or leave it out", path,
       std::string_view(file.message));
}

ImageInfo look(std::span<const std::byte> bytes, std::string_view path, std::uint64_t) {
  Jpeg file;
  if (!read_header(file, bytes)) corrupt(path, file);
  const J_COLOR_SPACE colours = file.decoder.jpeg_color_space;
  if (colours != JCS_GRAYSCALE && colours != JCS_YCbCr && colours != JCS_RGB) {
    fail(Errc::Unsupported, "[images] '{}' is JPEG in other colours than grey and RGB; convert it",
         path);
  }
  const ImageInfo found{.channels = colours == JCS_GRAYSCALE ? 1 : 3,
                        .rows = file.decoder.image_height,
                        .cols = file.decoder.image_width};
  // A block of 8 x 8 values takes at least one bit.
  if (found.rows * found.cols / (64 * 8) > static_cast<std::int64_t>(bytes.size())) {
    fail(Errc::CorruptData, "[images] '{}': {} bytes cannot be a JPEG image of {}", path,
         bytes.size(), to_string(found.shape()));
  }
  return found;
}

void decode(std::span<const std::byte> bytes, std::string_view path, std::uint64_t,
            const ImageInfo& info, std::byte* out) {
  Jpeg file;
  if (!read_header(file, bytes)) corrupt(path, file);
  file.decoder.out_color_space = info.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  if (!read_rows(file, out, static_cast<std::size_t>(info.channels * info.cols))) {
    corrupt(path, file);
  }
}

}  // namespace

const ImageFormat kJpegImage = {.name = "JPEG", .look = look, .decode = decode};

}  // namespace tuckfold
