// The few functions of libzfp that are used. It is loaded on first use rather than linked, because
// it loads an OpenMP runtime, which nobody should get without asking.
#pragma once

#include <cstddef>

namespace tuckfold {

// From zfp.h and bitstream.h, with opaque pointers; the same in releases 0.5 to 1.0 on 64 bits.
struct ZfpLibrary {
  static constexpr int kFloat = 3, kDouble = 4;  // zfp_type

  // Takes each function from find(name), which throws where there is none.
  template <class Find>
  explicit ZfpLibrary(const Find& find) {
    const auto look = [&]<class Function>(Function*& function, const char* name) {
      function = reinterpret_cast<Function*>(find(name));
    };
    look(stream_open, "stream_open");
    look(stream_close, "stream_close");
    look(zfp_stream_open, "zfp_stream_open");
    look(zfp_stream_close, "zfp_stream_close");
    look(zfp_stream_set_rate, "zfp_stream_set_rate");
    look(zfp_stream_set_accuracy, "zfp_stream_set_accuracy");
    look(zfp_stream_set_precision, "zfp_stream_set_precision");
    look(zfp_stream_set_bit_stream, "zfp_stream_set_bit_stream");
    look(zfp_stream_maximum_size, "zfp_stream_maximum_size");
    look(zfp_stream_rewind, "zfp_stream_rewind");
    look(zfp_field_2d, "zfp_field_2d");
    look(zfp_field_free, "zfp_field_free");
    look(zfp_compress, "zfp_compress");
    look(zfp_decompress, "zfp_decompress");
    look(stream_word_bits, "stream_word_bits");
  }

  void* (*stream_open)(void* buffer, std::size_t bytes);
  void (*stream_close)(void* bits);
  void* (*zfp_stream_open)(void* bits);
  void (*zfp_stream_close)(void* stream);
  double (*zfp_stream_set_rate)(void* stream, double rate, int type, unsigned dims, int align);
  double (*zfp_stream_set_accuracy)(void* stream, double tolerance);
  unsigned (*zfp_stream_set_precision)(void* stream, unsigned precision);
  void (*zfp_stream_set_bit_stream)(void* stream, void* bits);
  std::size_t (*zfp_stream_maximum_size)(const void* stream, const void* field);
  void (*zfp_stream_rewind)(void* stream);
  // Without a second length the field has one dimension.
  void* (*zfp_field_2d)(void* values, int type, std::size_t nx, std::size_t ny);
  void (*zfp_field_free)(void* field);
  std::size_t (*zfp_compress)(void* stream, const void* field);  // bytes written, 0 on failure
  std::size_t (*zfp_decompress)(void* stream, void* field);      // bytes read, 0 on failure
  const std::size_t* stream_word_bits;  // in which bytes are counted, 8 to 64 as it was built
};

// The system's, loaded on first use and kept. Throws Unsupported where there is none.
const ZfpLibrary& zfp_library();

}  // namespace tuckfold
