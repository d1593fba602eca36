// Samples in memory, mapped or inflated: most formats only give their address and type.
//
//   SlabBuilder builder("cifar", path);
//   builder.keep(file);
//   builder.add("label", {.data = at, .samples = n, .step = 3073, .dtype = DType::U8}, {});
//   return builder.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/npy.h"
#include "inputs/source.h"

namespace tuckfold {

struct Slab {
  const std::byte* data = nullptr;  // need not be aligned
  std::int64_t samples = 0;
  std::int64_t step = 0;  // bytes from one sample to the next
  DType dtype = DType::U8;
  bool big_endian = false;
  std::shared_ptr<const Shape> strides = nullptr;  // of a sample, in elements; null: row-major
  std::size_t image_bytes = 0;  // of the image file here, the only sample; 0: values
};

// Writes `count` samples of a slab row-major, and returns their end. Bytes of bools that are not 0
// become 1, as in numpy.
std::byte* read_slab(const Slab& slab, std::int64_t first, std::int64_t count,
                     const SourceArray& array, std::byte* out);

// Bytes that are not 0 become 1, in place.
void normalize_bools(std::byte* bytes, std::int64_t count);

// Gathers the arrays of one file. Slabs of the same name follow one another.
class SlabBuilder {
 public:
  SlabBuilder(std::string_view verb, std::string path) : verb_(verb), path_(std::move(path)) {}

  // Keeps the bytes that slabs point into as long as the source.
  void keep(std::shared_ptr<const Bytes> bytes) { kept_.push_back(std::move(bytes)); }

  // An array of its own. The caller has checked that the bytes hold the slab.
  void add(std::string name, const Slab& slab, const Shape& sample);

  // An array whose leading axis counts samples, values from `data` on, row-major.
  void add(std::string name, const std::byte* data, DType dtype, const Shape& shape);

  // An array of a .npy file's bytes.
  void add_npy(std::string name, std::span<const std::byte> bytes, std::string_view path);

  // An array of many slabs of one sample shape.
  void add(std::string name, std::vector<Slab> slabs, const Shape& sample);

  // Throws InvalidArgument where two arrays have different numbers of samples, or there are none.
  std::unique_ptr<Source> finish();

 private:
  std::string_view verb_;
  std::string path_;
  std::vector<SourceArray> arrays_;
  std::vector<std::vector<Slab>> slabs_;
  std::vector<std::int64_t> samples_;
  std::vector<std::shared_ptr<const Bytes>> kept_;
};

// The shape without its leading axis. Throws InvalidArgument for a scalar.
Shape sample_of(const Shape& shape, std::string_view verb, std::string_view path,
                std::string_view name);

}  // namespace tuckfold
