// zfp in fixed-rate mode over two dimensions: all leading axes folded into rows.
#include <array>
#include <cstdint>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/peer.h"
#include "codec/zfp/zfp_library.h"

namespace tuckfold::cli {
namespace {

class ZfpSubject : public Subject {
 public:
  ZfpSubject(const ZfpLibrary& zfp, double rate, const Array& array, const HugeBuffer& out,
             int threads)
      : Subject(fmt::format("zfp(rate={:g})", rate), true, true), zfp_(zfp), threads_(threads) {
    const int type = array.dtype == DType::F64 ? ZfpLibrary::kDouble : ZfpLibrary::kFloat;
    const std::size_t width = size_bytes(array.dtype);
    for (const Band& band : bands_of(array, threads)) {
      Part& part = parts_.emplace_back();
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

  ZfpLibrary zfp_;
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
  const Library library("zfp", request.path, kNames);
  const ZfpLibrary zfp([&](const char* name) { return library.find(name); });
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const double rate : request.settings) {
    subjects.push_back(std::make_unique<ZfpSubject>(zfp, rate, array, out, threads));
  }
  return subjects;
}

}  // namespace tuckfold::cli
