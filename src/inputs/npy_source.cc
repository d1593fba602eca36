// .npy files: one array, called data, whose leading axis counts samples.
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

bool looks_like(const SourceInput& input) { return input.text().starts_with("\x93NUMPY"); }

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions&) {
  SlabBuilder builder("npy", input.path);
  builder.keep(input.file);
  builder.add_npy("data", input.bytes(), input.path);
  return builder.finish();
}

}  // namespace

const SourceFormat kNpySource = {.name = "npy",
                                 .summary = "an array of NumPy's; the leading axis counts samples",
                                 .extensions = ".npy",
                                 .looks_like = looks_like,
                                 .open = open_each<open_one>};

}  // namespace tuckfold
