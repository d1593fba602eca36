// zfp in fixed-rate mode over two dimensions: all leading axes folded into rows.
#include <array>
#include <cstdint>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/peer.h"

namespace tuckfold::cli {
namespace {

// From zfp.h and bitstream.h, with opaque pointers; the same in releases 0.5 to 1.0 on 64 bits.
struct Zfp {
  explicit Zfp(const Library& library)
      : stream_open(library.symbol<void*(void*, std::size_t)>("stream_open")),
        stream_close(library.symbol<void(void*)>("stream_close")),
        zfp_stream_open(library.symbol<void*(void*)>("zfp_stream_open")),
        zfp_stream_close(library.symbol<void(void*)>("zfp_stream_close")),
        zfp_stream_set_rate(
            library.symbol<double(void*, double, int, unsigned, int)>("zfp_stream_set_rate")),
        zfp_stream_set_bit_stream(library.symbol<void(void*, void*)>("zfp_stream_set_bit_stream")),
        zfp_stream_maximum_size(
            library.symbol<std::size_t(const void*, const void*)>("zfp_stream_maximum_size")),
        zfp_stream_rewind(library.symbol<void(void*)>("zfp_stream_rewind")),
        zfp_field_2d(library.symbol<void*(void*, int, std::size_t, std::size_t)>("zfp_field_2d")),
        zfp_field_free(library.symbol<void(void*)>("zfp_field_free")),
        zfp_compress(library.symbol<std::size_t(void*, const void*)>("zfp_compress")),
        zfp_decompress(library.symbol<std::size_t(void*, void*)>("zfp_decompress")) {}

  void* (*stream_open)(void*, std::size_t);
  void (*stream_close)(void*);
  void* (*zfp_stream_open)(void*);
  void (*zfp_stream_close)(void*);
  double (*zfp_stream_set_rate)(void*, double, int, unsigned, int);
  void (*zfp_stream_set_bit_stream)(void*, void*);
  std::size_t (*zfp_stream_maximum_size)(const void*, const void*);
  void (*zfp_stream_rewind)(void*);
  void* (*zfp_field_2d)(void*, int, std::size_t, std::size_t);
  void (*zfp_field_free)(void*);
  std::size_t (*zfp_compress)(void*, const void*);
  std::size_t (*zfp_decompress)(void*, void*);
};

class ZfpSubject : public Subject {
 public:
  ZfpSubject(const Zfp& zfp, double rate, const Array& array, const HugeBuffer& out, int threads)
      : Subject(fmt::format("zfp(rate={:g})", rate), true, true), zfp_(zfp), threads_(threads) {
    const int type = array.dtype == DType::F64 ? 4 : 3;  // zfp_type_double, zfp_type_float
    const std::size_t width = size_bytes(array.dtype);
    for (const Band& band : bands_of(array, threads)) {
      Part& part = parts_.emplace_back();
      // No second length makes a field of one dimension.
      const std::size_t nx = band.cols == 1 ? band.rows : band.cols;
      const std::size_t ny = band.cols == 1 ? 0 : band.rows;
      part.in = zfp_.zfp_field_2d(array.values.data() + band.offset * width, type, nx, ny);
      part.out = zfp_.zfp_field_2d(out.data() + band.offset * width, type, nx, ny);
      part.stream = zfp_.zfp_stream_open(nullptr);
      zfp_.zfp_stream_set_rate(part.stream, rate, type, ny == 0 ? 1 : 2, 0);
      part.packed = HugeBuffer(zfp_.zfp_stream_maximum_size(part.stream, part.in));
      part.bits = zfp_.stream_open(part.packed.data(), part.packed.size());
      zfp_.zfp_stream_set_bit_stream(part.stream, part.bits);
    }
  }

  ~ZfpSubject() override {
    for (Part& part : parts_) {
      zfp_.zfp_field_free(part.in);
      zfp_.zfp_field_free(part.out);
      zfp_.zfp_stream_close(part.stream);
      zfp_.stream_close(part.bits);
    }
  }
  ZfpSubject(const ZfpSubject&) = delete;
  ZfpSubject& operator=(const ZfpSubject&) = delete;

  std::size_t pack() override {
    for_each_part([this](Part& part) { part.bytes = zfp_.zfp_compress(part.stream, part.in); });
    std::size_t bytes = 0;
    for (const Part& part : parts_) bytes += part.bytes;
    return bytes;
  }

  void unpack() override {
    for_each_part([this](Part& part) { part.bytes = zfp_.zfp_decompress(part.stream, part.out); });
  }

 private:
  struct Part {
    void *in, *out, *stream, *bits;
    HugeBuffer packed;
    std::size_t bytes = 0;  // as the last call returned it; 0 is its only sign of failure
  };

  template <class Body>
  void for_each_part(Body&& body) {
    parallel_for(static_cast<std::int64_t>(parts_.size()), threads_,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     Part& part = parts_[static_cast<std::size_t>(i)];
                     zfp_.zfp_stream_rewind(part.stream);
                     body(part);
                   }
                 });
    for (const Part& part : parts_) {
      if (part.bytes == 0) fail(Errc::Unsupported, "[bench] {} failed on this array", name());
    }
  }

  Zfp zfp_;
  int threads_;
  std::vector<Part> parts_;
};

}  // namespace

std::vector<std::unique_ptr<Subject>> zfp_subjects(const PeerRequest& request, const Array& array,
                                                   const HugeBuffer& out, int threads) {
  if (array.dtype != DType::F32 && array.dtype != DType::F64) {
    fail(Errc::Unsupported, "[bench] peer zfp takes f32 and f64, '{}' is {}; use --as f32",
         array.name, to_string(array.dtype));
  }
  constexpr std::array kNames = {"libzfp.so.1", "libzfp.so.0"};
  const Zfp zfp(Library("zfp", request.path, kNames));
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const double rate : request.settings) {
    subjects.push_back(std::make_unique<ZfpSubject>(zfp, rate, array, out, threads));
  }
  return subjects;
}

}  // namespace tuckfold::cli
