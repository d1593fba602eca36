#include "inputs/hdf5_types.h"

#include <string>

#include "base/dtype.h"
#include "base/fail.h"

namespace tuckfold::hdf5 {
namespace {

// An enumeration of FALSE and TRUE, 0 and 1 in a byte: how h5py stores bools.
bool is_bool(hid_t type) {
  if (::H5Tget_nmembers(type) != 2) return false;
  for (unsigned i = 0; i < 2; ++i) {
    unsigned char value = 0;
    char* name = ::H5Tget_member_name(type, i);
    const std::string word = name == nullptr ? "" : name;
    ::H5free_memory(name);
    if (::H5Tget_member_value(type, i, &value) < 0 || word != (value == 1 ? "TRUE" : "FALSE")) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<DType> dtype_by(hid_t type) {
  const std::size_t size = ::H5Tget_size(type);
  switch (::H5Tget_class(type)) {
    case H5T_ENUM: {
      if (size != 1) return std::nullopt;
      if (is_bool(type)) return DType::Bool;
      const Handle base(::H5Tget_super(type), ::H5Tclose);
      return base ? dtype_by(base.get()) : std::nullopt;
    }
    case H5T_INTEGER: {
      const bool is_signed = ::H5Tget_sign(type) == H5T_SGN_2;
      if (size == 1) return is_signed ? DType::I8 : DType::U8;
      if (size == 2) return is_signed ? DType::I16 : DType::U16;
      if (size == 4) return is_signed ? DType::I32 : DType::U32;
      if (size == 8) return is_signed ? DType::I64 : DType::U64;
      return std::nullopt;
    }
    case H5T_FLOAT: {
      const auto is = [&](hid_t little, hid_t big) {
        return ::H5Tequal(type, little) > 0 || ::H5Tequal(type, big) > 0;
      };
      if (is(H5T_IEEE_F32LE, H5T_IEEE_F32BE)) return DType::F32;
      if (is(H5T_IEEE_F64LE, H5T_IEEE_F64BE)) return DType::F64;
      std::size_t sign = 0, exponent = 0, exponent_bits = 0, fraction = 0, fraction_bits = 0;
      ::H5Tget_fields(type, &sign, &exponent, &exponent_bits, &fraction, &fraction_bits);
      if (size == 2 && sign == 15 && exponent == 10 && exponent_bits == 5 && fraction_bits == 10) {
        return DType::F16;
      }
      return std::nullopt;
    }
    default: return std::nullopt;
  }
}

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

}  // namespace tuckfold::hdf5
