// zfp in fixed-rate mode over two dimensions: all leading axes folded into rows.
#include <array>
#include <cstdint>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/peer.h"
#include "codec/zfp/zfp_library.h"

namespace tuckfold::cli {
namespace {

class ZfpTarget : public BenchTarget {
 public:
  ZfpTarget(const ZfpLibrary& zfp, double rate, const Array& array, const HugeBuffer& out,
            int threads)
      : BenchTarget(fmt::format("zfp(rate={:g})", rate), true, true), zfp_(zfp), threads_(threads) {
    const int type = array.dtype == DType::F64 ? ZfpLibrary::kDouble : ZfpLibrary::kFloat;
    const std::size_t width = size_bytes(array.dtype);
    for (const Band& band : bands_of(array, threads)) {
      ThreadShare& share = shares_.emplace_back();
      const std::size_t nx = band.cols == 1 ? band.rows : band.cols;
      const std::size_t ny = band.cols == 1 ? 0 : band.rows;
      share.in = zfp_.zfp_field_2d(array.values.data() + band.offset * width, type, nx, ny);
      share.out = zfp_.zfp_field_2d(out.data() + band.offset * width, type, nx, ny);
      share.stream = zfp_.zfp_stream_open(nullptr);
      zfp_.zfp_stream_set_rate(share.stream, rate, type, ny == 0 ? 1 : 2, 0);
      share.packed = HugeBuffer(zfp_.zfp_stream_maximum_size(share.stream, share.in));
      share.bits = zfp_.stream_open(share.packed.data(), share.packed.size());
      zfp_.zfp_stream_set_bit_stream(share.stream, share.bits);
    }
  }

  ~ZfpTarget() override {
    for (ThreadShare& share : shares_) {
      zfp_.zfp_field_free(share.in);
      zfp_.zfp_field_free(share.out);
      zfp_.zfp_stream_close(share.stream);
      zfp_.stream_close(share.bits);
    }
  }
  ZfpTarget(const ZfpTarget&) = delete;
  ZfpTarget& operator=(const ZfpTarget&) = delete;

  std::size_t pack() override {
    for_each_share(
        [this](ThreadShare& share) { share.bytes = zfp_.zfp_compress(share.stream, share.in); });
    std::size_t bytes = 0;
    for (const ThreadShare& share : shares_) bytes += share.bytes;
    return bytes;
  }

  void unpack() override {
    for_each_share(
        [this](ThreadShare& share) { share.bytes = zfp_.zfp_decompress(share.stream, share.out); });
  }

 private:
  struct ThreadShare {
    void *in, *out, *stream, *bits;
    HugeBuffer packed;
    std::size_t bytes = 0;  // as the last call returned it; 0 is its only sign of failure
  };

  template <class Body>
  void for_each_share(Body&& body) {
    parallel_for(static_cast<std::int64_t>(shares_.size()), threads_,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     ThreadShare& share = shares_[static_cast<std::size_t>(i)];
                     zfp_.zfp_stream_rewind(share.stream);
                     body(share);
                   }
                 });
    for (const ThreadShare& share : shares_) {
      if (share.bytes == 0) fail(Errc::Unsupported, "[bench] {} failed on this array", name());
    }
  }

  ZfpLibrary zfp_;
  int threads_;
  std::vector<ThreadShare> shares_;
};

}  // namespace

std::vector<std::unique_ptr<BenchTarget>> zfp_targets(const PeerRequest& request,
                                                      const Array& array, const HugeBuffer& out,
                                                      int threads) {
  if (array.dtype != DType::F32 && array.dtype != DType::F64) {
    fail(Errc::Unsupported, "[bench] peer zfp takes f32 and f64, '{}' is {}; use --as f32",
         array.name, to_string(array.dtype));
  }
  constexpr std::array kNames = {"libzfp.so.1", "libzfp.so.0"};
  const Library library("zfp", request.path, kNames);
  const ZfpLibrary zfp([&](const char* name) { return library.find(name); });
  std::vector<std::unique_ptr<BenchTarget>> targets;
  for (const double rate : request.settings) {
    targets.push_back(std::make_unique<ZfpTarget>(zfp, rate, array, out, threads));
  }
  return targets;
}

}  // namespace tuckfold::cli
