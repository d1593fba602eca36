// Bare values, little-endian and row-major: whoever names dtype and sample shape knows the rest.
#include "base/fail.h"
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

// No bytes identify this format; source.cc selects it if a dtype or a shape is given.
bool looks_like(const SourceInput&) { return false; }

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions& options) {
  if (!options.dtype || !options.sample) {
    invalid("[raw] '{}' does not say its dtype and the shape of a sample; give both", input.path);
  }
  const std::int64_t elems = options.sample->elems();
  const std::size_t bytes = input.bytes().size();
  const std::size_t size = size_bytes(*options.dtype);
  if (elems == 0) {
    invalid("[raw] a sample must have values, got the shape {}", to_string(*options.sample));
  }
  // In this order nothing overflows.
  if (bytes % size != 0 || (bytes / size) % static_cast<std::size_t>(elems) != 0) {
    invalid(
        "[raw] '{}' must hold whole samples of {} {}, but has {} bytes; give its dtype and shape",
        input.path, to_string(*options.sample), to_string(*options.dtype), bytes);
  }
  Shape shape{static_cast<std::int64_t>(bytes / size) / elems};
  for (const std::int64_t axis : *options.sample) shape.push_back(axis);
  SlabBuilder builder("raw", input.path);
  builder.keep(input.file);
  builder.add("data", input.bytes().data(), *options.dtype, shape);
  return builder.finish();
}

}  // namespace

const SourceFormat kRawSource = {
    .name = "raw",
    .summary = "bare values, little-endian; dtype and the shape of a sample are given",
    .extensions = "",
    .looks_like = looks_like,
    .open = open_each<open_one>};

}  // namespace tuckfold
