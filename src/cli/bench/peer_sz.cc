// SZ3 and SZx, which bound the error and allocate what they return.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/peer.h"
#include "cli/quality/quality.h"

namespace tuckfold::cli {
namespace {

constexpr int kFloat = 0;           // SZ_FLOAT, SZx_FLOAT
constexpr int kAbsoluteBound = 0;   // ABS
constexpr int kSzxBlockedMode = 2;  // SZx_WITH_BLOCK_FAST_CMPR

// From sz3c.h and szx.h. Lengths go from the slowest axis to the fastest; absent ones are 0.
using Sz3Compress = unsigned char*(int type, void* data, std::size_t* bytes, int mode,
                                   double absolute, double relative, double pointwise, std::size_t,
                                   std::size_t, std::size_t, std::size_t rows, std::size_t cols);
using Sz3Decompress = void*(int type, unsigned char* packed, std::size_t bytes, std::size_t,
                            std::size_t, std::size_t, std::size_t rows, std::size_t cols);
using SzxCompress = unsigned char*(int fast, int type, void* data, std::size_t* bytes, int mode,
                                   float absolute, float relative, float ratio, float tolerance,
                                   std::size_t, std::size_t, std::size_t, std::size_t,
                                   std::size_t elems);
using SzxDecompress = void*(int fast, int type, unsigned char* packed, std::size_t bytes,
                            std::size_t, std::size_t, std::size_t, std::size_t, std::size_t elems);

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

struct Packed {
  Memory memory;
  std::size_t bytes = 0;
};

// One library's two functions, over one band of f32 values.
class SzLibrary {
 public:
  virtual ~SzLibrary() = default;
  virtual Packed pack(const Band& band, void* values, double bound) const = 0;
  virtual Memory unpack(const Band& band, const Packed& packed) const = 0;
};

unsigned char* bytes_of(const Packed& packed) {
  return static_cast<unsigned char*>(packed.memory.get());
}

class Sz3 : public SzLibrary {
 public:
  explicit Sz3(const Library& library)
      : compress_(library.symbol<Sz3Compress>("SZ_compress_args")),
        decompress_(library.symbol<Sz3Decompress>("SZ_decompress")) {}

  Packed pack(const Band& band, void* values, double bound) const override {
    Packed packed;
    packed.memory.reset(compress_(kFloat, values, &packed.bytes, kAbsoluteBound, bound, 0, 0, 0, 0,
                                  0, slow(band), fast(band)));
    return packed;
  }
  Memory unpack(const Band& band, const Packed& packed) const override {
    return Memory(
        decompress_(kFloat, bytes_of(packed), packed.bytes, 0, 0, 0, slow(band), fast(band)));
  }

 private:
  static std::size_t slow(const Band& band) { return band.cols == 1 ? 0 : band.rows; }
  static std::size_t fast(const Band& band) { return band.cols == 1 ? band.rows : band.cols; }

  Sz3Compress* compress_;
  Sz3Decompress* decompress_;
};

class Szx : public SzLibrary {
 public:
  explicit Szx(const Library& library)
      : compress_(library.symbol<SzxCompress>("SZx_fast_compress_args")),
        decompress_(library.symbol<SzxDecompress>("SZx_fast_decompress")) {}

  Packed pack(const Band& band, void* values, double bound) const override {
    Packed packed;
    packed.memory.reset(compress_(kSzxBlockedMode, kFloat, values, &packed.bytes, kAbsoluteBound,
                                  static_cast<float>(bound), 0, 0, 0, 0, 0, 0, 0, band.elems()));
    return packed;
  }
  Memory unpack(const Band& band, const Packed& packed) const override {
    return Memory(decompress_(kSzxBlockedMode, kFloat, bytes_of(packed), packed.bytes, 0, 0, 0, 0,
                              band.elems()));
  }

 private:
  SzxCompress* compress_;
  SzxDecompress* decompress_;
};

class SzTarget : public BenchTarget {
 public:
  SzTarget(std::string name, std::shared_ptr<const SzLibrary> library, double bound,
           const Array& array, const HugeBuffer& out, int threads)
      : BenchTarget(std::move(name), true, false),
        library_(std::move(library)),
        bound_(bound),
        in_(reinterpret_cast<float*>(array.values.data())),
        out_(reinterpret_cast<float*>(out.data())),
        threads_(threads) {
    for (const Band& band : bands_of(array, threads)) shares_.push_back({band, {}, {}});
  }

  std::size_t pack() override {
    for_each_share([this](ThreadShare& share) {
      share.packed = library_->pack(share.band, in_ + share.band.offset, bound_);
      return share.packed.memory != nullptr;
    });
    std::size_t bytes = 0;
    for (const ThreadShare& share : shares_) bytes += share.packed.bytes;
    return bytes;
  }

  void unpack() override {
    for_each_share([this](ThreadShare& share) {
      share.result = library_->unpack(share.band, share.packed);
      return share.result != nullptr;
    });
  }

  void finish_unpack() override {
    for (const ThreadShare& share : shares_) {
      std::memcpy(out_ + share.band.offset, share.result.get(), share.band.elems() * sizeof(float));
    }
  }

 private:
  struct ThreadShare {
    Band band;
    Packed packed;
    Memory result;
    bool done = false;
  };

  // The body says whether it succeeded; these libraries also throw through their C interface.
  template <class Body>
  void for_each_share(Body&& body) {
    parallel_for(static_cast<std::int64_t>(shares_.size()), threads_,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     ThreadShare& share = shares_[static_cast<std::size_t>(i)];
                     try {
                       share.done = body(share);
                     } catch (...) {
                       share.done = false;
                     }
                   }
                 });
    for (const ThreadShare& share : shares_) {
      if (!share.done) fail(Errc::Unsupported, "[bench] {} failed on this array", name());
    }
  }

  std::shared_ptr<const SzLibrary> library_;
  double bound_;
  float *in_, *out_;
  int threads_;
  std::vector<ThreadShare> shares_;
};

}  // namespace

std::vector<std::unique_ptr<BenchTarget>> sz_targets(const PeerRequest& request, const Array& array,
                                                     const HugeBuffer& out, int threads) {
  if (array.dtype != DType::F32) {
    fail(Errc::Unsupported, "[bench] peer {} takes f32, '{}' is {}; use --as f32", request.name,
         array.name, to_string(array.dtype));
  }
  constexpr std::array kSz3Names = {"libSZ3c.so"}, kSzxNames = {"libSZx.so"};
  std::shared_ptr<const SzLibrary> library;
  if (request.name == "sz3") {
    library = std::make_shared<Sz3>(Library("sz3", request.path, kSz3Names));
  } else {
    library = std::make_shared<Szx>(Library("szx", request.path, kSzxNames));
  }
  const double range =
      compare(array.dtype, array.shape.elems(), array.values.data(), array.values.data()).range;
  std::vector<std::unique_ptr<BenchTarget>> targets;
  for (const double relative : request.settings) {
    targets.push_back(
        std::make_unique<SzTarget>(fmt::format("{}(rel={:g})", request.name, relative), library,
                                   relative * range, array, out, threads));
  }
  return targets;
}

}  // namespace tuckfold::cli
