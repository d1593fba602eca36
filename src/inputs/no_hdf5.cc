// Linked where libhdf5 is not there.
#include "base/fail.h"
#include "inputs/formats.h"
#include "inputs/hdf5_writer.h"

namespace tuckfold {

const SourceFormat kHdf5Source = {
    .name = "hdf5",
    .summary = "left out of this build, which lacks libhdf5-dev",
    .extensions = ".h5 .hdf5 .hdf .nc",
    .looks_like = [](const SourceInput& input) { return input.text().starts_with("\x89HDF"); },
    .open = [](std::span<const SourceInput> inputs,
               const SourceOptions&) -> std::unique_ptr<Source> {
      fail(Errc::Unsupported,
           "[hdf5] '{}' is HDF5, which this build cannot read; install libhdf5-dev and build again",
           inputs.front().path);
    }};

struct Hdf5Writer::Impl {};

Hdf5Writer::Hdf5Writer(const std::string&, std::string name) {
  fail(Errc::Unsupported,
       "[hdf5] '{}' would be HDF5, which this build cannot write; install libhdf5-dev and build "
       "again, or name OUT.npz",
       name);
}
Hdf5Writer::~Hdf5Writer() = default;
void Hdf5Writer::set_attributes(const AttributesJson&) {}
void Hdf5Writer::begin(const std::string&, DType, const Shape&, const AttributesJson&,
                       std::span<const FillValue>) {}
void Hdf5Writer::add(std::span<const std::byte>) {}
void Hdf5Writer::finish() {}

}  // namespace tuckfold
