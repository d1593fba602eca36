#include "inputs/hdf5_writer.h"

#include <utility>
#include <vector>

#include "base/fail.h"
#include "inputs/hdf5_session.h"

namespace tuckfold {
namespace {

using hdf5::complaint, hdf5::Handle, hdf5::Session;

Handle type_of(DType dtype) {
  switch (dtype) {
    case DType::F32: return {::H5Tcopy(H5T_IEEE_F32LE), ::H5Tclose};
    case DType::F64: return {::H5Tcopy(H5T_IEEE_F64LE), ::H5Tclose};
    case DType::U8: return {::H5Tcopy(H5T_STD_U8LE), ::H5Tclose};
    case DType::I32: return {::H5Tcopy(H5T_STD_I32LE), ::H5Tclose};
    case DType::I64: return {::H5Tcopy(H5T_STD_I64LE), ::H5Tclose};
    case DType::U16: return {::H5Tcopy(H5T_STD_U16LE), ::H5Tclose};
    case DType::I16: return {::H5Tcopy(H5T_STD_I16LE), ::H5Tclose};
    case DType::I8: return {::H5Tcopy(H5T_STD_I8LE), ::H5Tclose};
    case DType::U32: return {::H5Tcopy(H5T_STD_U32LE), ::H5Tclose};
    case DType::U64: return {::H5Tcopy(H5T_STD_U64LE), ::H5Tclose};
    case DType::Bool: {  // as h5py has it: an enumeration of a byte
      Handle truth(::H5Tenum_create(H5T_STD_I8LE), ::H5Tclose);
      const signed char no = 0, yes = 1;
      ::H5Tenum_insert(truth.get(), "FALSE", &no);
      ::H5Tenum_insert(truth.get(), "TRUE", &yes);
      return truth;
    }
    case DType::F16: {  // as h5py has it: a sign, 5 bits of exponent, 10 of fraction
      Handle half(::H5Tcopy(H5T_IEEE_F32LE), ::H5Tclose);
      ::H5Tset_fields(half.get(), 15, 10, 5, 0, 10);
      ::H5Tset_size(half.get(), 2);
      ::H5Tset_ebias(half.get(), 15);
      return half;
    }
    case DType::BF16: break;
  }
  fail(Errc::Unsupported, "[hdf5] a file has no {}; convert it first", to_string(dtype));
}

}  // namespace

struct Hdf5Writer::Impl {
  std::string name;
  Handle file, data, type;
  std::vector<hsize_t> axes;
  std::size_t row_bytes = 1;
  hsize_t row = 0;

  [[noreturn]] void refuse(std::string_view doing) const {
    fail(Errc::Io, "[hdf5] cannot {} '{}': {}", doing, name, complaint());
  }
};

Hdf5Writer::Hdf5Writer(const std::string& path, std::string name)
    : impl_(std::make_unique<Impl>()) {
  const Session session;
  impl_->name = std::move(name);
  impl_->file = {::H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), ::H5Fclose};
  if (!impl_->file) impl_->refuse("create");
}

Hdf5Writer::~Hdf5Writer() {
  const Session session;
  impl_.reset();
}

void Hdf5Writer::begin(const std::string& array, DType dtype, const Shape& shape) {
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
  impl_->data = {::H5Dcreate2(impl_->file.get(), array.c_str(), impl_->type.get(), space.get(),
                              links.get(), H5P_DEFAULT, H5P_DEFAULT),
                 ::H5Dclose};
  if (!impl_->data) impl_->refuse(fmt::format("create the dataset '{}' in", array));
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
