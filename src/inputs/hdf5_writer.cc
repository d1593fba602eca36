#include "inputs/hdf5_writer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "inputs/hdf5_session.h"
#include "inputs/hdf5_types.h"
#include "inputs/hdf5_write_attributes.h"

namespace tuckfold {
namespace {

using hdf5::complaint, hdf5::Handle, hdf5::Session, hdf5::type_of;

// Chunks of about a megabyte: some samples, or a part of one. Small arrays, for which a filter gains
// nothing, are contiguous; so are all where the library lacks deflate.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20, kSmallBytes = std::size_t{1} << 14;

std::vector<hsize_t> chunk_of(const std::vector<hsize_t>& axes, std::size_t value_bytes) {
  std::vector<hsize_t> chunk(axes.size(), 1);
  hsize_t room = kChunkBytes / value_bytes;
  for (std::size_t i = axes.size(); i-- > 0 && room > 1; room /= chunk[i]) {
    chunk[i] = std::min(axes[i], room);
  }
  return chunk;
}

// How a dataset is stored, and a cache that holds every chunk of the samples that one of them has.
std::pair<Handle, Handle> storage_of(const std::vector<hsize_t>& axes, std::size_t value_bytes) {
  std::pair<Handle, Handle> how{Handle(::H5Pcreate(H5P_DATASET_CREATE), ::H5Pclose),
                                Handle(::H5Pcreate(H5P_DATASET_ACCESS), ::H5Pclose)};
  std::size_t bytes = value_bytes;
  for (const hsize_t axis : axes) bytes *= axis;
  if (axes.empty() || bytes < kSmallBytes || ::H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0) return how;
  const std::vector<hsize_t> chunk = chunk_of(axes, value_bytes);
  ::H5Pset_chunk(how.first.get(), static_cast<int>(chunk.size()), chunk.data());
  ::H5Pset_shuffle(how.first.get());
  ::H5Pset_deflate(how.first.get(), 1);
  const std::size_t rows = bytes / axes[0] * chunk[0] + kChunkBytes;
  ::H5Pset_chunk_cache(how.second.get(), 12421, std::min(rows, std::size_t{256} << 20), 1);
  return how;
}

// As HDF5 reads a name: empty parts and those that are a dot do not count.
std::string path_of(std::string_view array) {
  std::string path;
  while (!array.empty()) {
    const std::string_view part = array.substr(0, array.find('/'));
    array.remove_prefix(std::min(array.size(), part.size() + 1));
    if (!part.empty() && part != ".") path.append("/").append(part);
  }
  return path;
}

}  // namespace

struct Hdf5Writer::Impl {
  std::string name;
  Handle file, data, type;
  std::vector<hsize_t> axes;
  std::size_t row_bytes = 1;
  hsize_t row = 0;
  std::vector<std::pair<std::string, std::string>> arrays;  // their paths and names

  // A dataset is no group: no other may have its path, or one below it.
  void claim(const std::string& array) {
    const std::string path = path_of(array);
    for (const auto& [other, other_name] : arrays) {
      if (path == other || path.starts_with(other + '/') || other.starts_with(path + '/')) {
        fail(
            Errc::InvalidArgument,
            "[hdf5] '{}' cannot hold both '{}' and '{}': a dataset has no others in it; select one "
            "of them, or unpack to a folder",
            name, other_name, array);
      }
    }
    arrays.emplace_back(path, array);
  }

  [[noreturn]] void refuse(std::string_view doing) const {
    fail(Errc::Io, "[hdf5] cannot {} '{}': {}", doing, name, complaint());
  }
};

Hdf5Writer::Hdf5Writer(const std::string& path, std::string name)
    : impl_(std::make_unique<Impl>()) {
  const Session session;
  impl_->name = std::move(name);
  const Handle access(::H5Pcreate(H5P_FILE_ACCESS), ::H5Pclose);
  // Older versions of the format have no attributes of more than 64 KiB.
  ::H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  impl_->file = {::H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), ::H5Fclose};
  if (!impl_->file) impl_->refuse("create");
}

Hdf5Writer::~Hdf5Writer() {
  const Session session;
  impl_.reset();
}

void Hdf5Writer::set_attributes(const AttributesJson& attributes) {
  const Session session;
  const Handle root(::H5Gopen2(impl_->file.get(), "/", H5P_DEFAULT), ::H5Gclose);
  if (!hdf5::write_attributes(root.get(), attributes)) impl_->refuse("write attributes of");
}

void Hdf5Writer::begin(const std::string& array, DType dtype, const Shape& shape,
                       const AttributesJson& attributes, std::span<const FillValue> fill) {
  impl_->claim(array);
  const Session session;
  impl_->type = type_of(dtype);
  impl_->axes.assign(shape.begin(), shape.end());
  impl_->row = 0;
  impl_->row_bytes = size_bytes(dtype);
  for (std::size_t i = 1; i < shape.rank(); ++i) {
    impl_->row_bytes *= static_cast<std::size_t>(shape[i]);
  }
  const Handle space(
      ::H5Screate_simple(static_cast<int>(shape.rank()), impl_->axes.data(), nullptr), ::H5Sclose);
  const Handle links(::H5Pcreate(H5P_LINK_CREATE), ::H5Pclose);
  ::H5Pset_create_intermediate_group(links.get(), 1);
  const auto [how, access] = storage_of(impl_->axes, size_bytes(dtype));
  impl_->data = {::H5Dcreate2(impl_->file.get(), array.c_str(), impl_->type.get(), space.get(),
                              links.get(), how.get(), access.get()),
                 ::H5Dclose};
  if (!impl_->data) impl_->refuse(fmt::format("create the dataset '{}' in", array));
  const hid_t data = impl_->data.get(), type = impl_->type.get();
  if (!hdf5::write_attributes(data, attributes, dtype) || !hdf5::write_fill(data, fill, type)) {
    impl_->refuse(fmt::format("write attributes of the dataset '{}' in", array));
  }
}

void Hdf5Writer::add(std::span<const std::byte> rows) {
  if (rows.empty()) return;
  const Session session;
  std::vector<hsize_t> start(impl_->axes.size(), 0), length = impl_->axes;
  start[0] = impl_->row;
  length[0] = rows.size() / impl_->row_bytes;
  impl_->row += length[0];
  const Handle space(::H5Dget_space(impl_->data.get()), ::H5Sclose);
  const Handle memory(::H5Screate_simple(static_cast<int>(length.size()), length.data(), nullptr),
                      ::H5Sclose);
  if (::H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, length.data(),
                            nullptr) < 0 ||
      ::H5Dwrite(impl_->data.get(), impl_->type.get(), memory.get(), space.get(), H5P_DEFAULT,
                 rows.data()) < 0) {
    impl_->refuse("write");
  }
}

void Hdf5Writer::finish() {
  const Session session;
  impl_->data = Handle();
  impl_->type = Handle();
  if (::H5Fflush(impl_->file.get(), H5F_SCOPE_LOCAL) < 0) impl_->refuse("write");
  impl_->file = Handle();
}

}  // namespace tuckfold
