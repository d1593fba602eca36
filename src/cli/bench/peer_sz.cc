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

class SzSubject : public Subject {
 public:
  SzSubject(std::string name, std::shared_ptr<const SzLibrary> library, double bound,
            const Array& array, const HugeBuffer& out, int threads)
      : Subject(std::move(name), true, false),
        library_(std::move(library)),
        bound_(bound),
        in_(reinterpret_cast<float*>(array.values.data())),
        out_(reinterpret_cast<float*>(out.data())),
        threads_(threads) {
    for (const Band& band : bands_of(array, threads)) parts_.push_back({band, {}, {}});
  }

  std::size_t pack() override {
    for_each_part([this](Part& part) {
      part.packed = library_->pack(part.band, in_ + part.band.offset, bound_);
      return part.packed.memory != nullptr;
    });
    std::size_t bytes = 0;
    for (const Part& part : parts_) bytes += part.packed.bytes;
    return bytes;
  }

  void unpack() override {
    for_each_part([this](Part& part) {
      part.result = library_->unpack(part.band, part.packed);
      return part.result != nullptr;
    });
  }

  void settle() override {
    for (const Part& part : parts_) {
      std::memcpy(out_ + part.band.offset, part.result.get(), part.band.elems() * sizeof(float));
    }
  }

 private:
  struct Part {
    Band band;
    Packed packed;
    Memory result;
    bool done = false;
  };

  // The body says whether it succeeded; these libraries also throw through their C interface.
  template <class Body>
  void for_each_part(Body&& body) {
    parallel_for(static_cast<std::int64_t>(parts_.size()), threads_,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     Part& part = parts_[static_cast<std::size_t>(i)];
                     try {
                       part.done = body(part);
                     } catch (...) {
                       part.done = false;
                     }
                   }
                 });
    for (const Part& part : parts_) {
      if (!part.done) fail(Errc::Unsupported, "[bench] {} failed on this array", name());
    }
  }

  std::shared_ptr<const SzLibrary> library_;
  double bound_;
  float *in_, *out_;
  int threads_;
  std::vector<Part> parts_;
};

}  // namespace

std::vector<std::unique_ptr<Subject>> sz_subjects(const PeerRequest& request, const Array& array,
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
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const double relative : request.settings) {
    subjects.push_back(
        std::make_unique<SzSubject>(fmt::format("{}(rel={:g})", request.name, relative), library,
                                    relative * range, array, out, threads));
  }
  return subjects;
}

}  // namespace tuckfold::cli
