// Reads attributes by libhdf5; whatever it cannot read is left out, since samples do not need it.
#include "inputs/hdf5_attributes.h"

#include <array>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/fail.h"
#include "base/json.h"
#include "base/text_scan.h"
#include "inputs/hdf5_session.h"
#include "inputs/hdf5_types.h"

namespace tuckfold::hdf5 {
namespace {

// How netCDF and dimension scales keep axes: references into the file, of no use outside of it.
bool is_internal(std::string_view name) {
  constexpr std::array kNames = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST",
                                 "DIMENSION_LABELS"};
  for (const std::string_view known : kNames) {
    if (name == known) return true;
  }
  return name.starts_with("_Netcdf4") || name == "_NCProperties";
}

// JSON has neither NaN nor infinities: they are texts. A whole number of floating point keeps its
// point, so that readers of JSON make no integer of it.
template <class T>
std::string json_number(T value) {
  std::string text = fmt::format("{}", value);
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return fmt::format("\"{}\"", text);
    if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  }
  return text;
}

std::string json_list(const std::vector<std::string>& values) {
  if (values.size() == 1) return values.front();  // netCDF has no scalars
  return fmt::format("[{}]", fmt::join(values, ", "));
}

template <class T>
std::optional<std::string> read_numbers(hid_t attribute, hid_t type, std::size_t count) {
  std::vector<T> values(count);
  if (::H5Aread(attribute, type, values.data()) < 0) return std::nullopt;
  std::vector<std::string> texts;
  for (const T value : values) texts.push_back(json_number(value));
  return json_list(texts);
}

std::optional<std::string> json_text(std::string_view text) {
  text = text.substr(0, text.find('\0'));
  if (find_bad_utf8(text) != text.npos) return std::nullopt;
  return json_string(text);
}

std::optional<std::string> read_texts(hid_t attribute, hid_t type, hid_t space, std::size_t count) {
  std::vector<std::string> texts;
  const auto add = [&](std::string_view text) {
    const std::optional<std::string> json = json_text(text);
    if (json) texts.push_back(*json);
    return json.has_value();
  };
  bool good = true;
  if (::H5Tis_variable_str(type) > 0) {
    std::vector<char*> values(count, nullptr);
    auto* pointers = static_cast<void*>(values.data());
    const Handle memory(::H5Tcopy(type), ::H5Tclose);
    if (::H5Aread(attribute, memory.get(), pointers) < 0) return std::nullopt;
    for (const char* value : values) good = good && add(value == nullptr ? "" : value);
    ::H5Dvlen_reclaim(memory.get(), space, H5P_DEFAULT, pointers);
  } else {
    const std::size_t size = ::H5Tget_size(type);
    if (size > Attributes::kMostBytes) return std::nullopt;
    std::vector<char> values(size * count);
    if (::H5Aread(attribute, type, values.data()) < 0) return std::nullopt;
    for (std::size_t i = 0; i < count; ++i) {
      good = good && add({values.data() + i * size, size});
    }
  }
  return good ? std::optional(json_list(texts)) : std::nullopt;
}

std::optional<std::string> read_value(hid_t attribute) {
  const Handle type(::H5Aget_type(attribute), ::H5Tclose);
  const Handle space(::H5Aget_space(attribute), ::H5Sclose);
  const hssize_t count = space ? ::H5Sget_simple_extent_npoints(space.get()) : -1;
  if (!type || count < 1 || count > static_cast<hssize_t>(Attributes::kMostValues)) {
    return std::nullopt;
  }
  const auto values = static_cast<std::size_t>(count);
  const std::size_t size = ::H5Tget_size(type.get());
  switch (::H5Tget_class(type.get())) {
    case H5T_STRING: return read_texts(attribute, type.get(), space.get(), values);
    case H5T_INTEGER:
      return ::H5Tget_sign(type.get()) == H5T_SGN_2
                 ? read_numbers<long long>(attribute, H5T_NATIVE_LLONG, values)
                 : read_numbers<unsigned long long>(attribute, H5T_NATIVE_ULLONG, values);
    case H5T_FLOAT:
      if (size > sizeof(double)) return std::nullopt;
      return size > sizeof(float) ? read_numbers<double>(attribute, H5T_NATIVE_DOUBLE, values)
                                  : read_numbers<float>(attribute, H5T_NATIVE_FLOAT, values);
    default: return std::nullopt;
  }
}

}  // namespace

SourceAttributes Attributes::of(hid_t object) {
  std::vector<std::string> names;
  const auto note = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  ::H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, note, &names);
  std::vector<std::string> values, types;
  for (const std::string& name : names) {
    if (is_internal(name)) continue;
    const Handle attribute(::H5Aopen(object, name.c_str(), H5P_DEFAULT), ::H5Aclose);
    const std::optional<std::string> key = json_text(name);
    const std::optional<std::string> value = attribute ? read_value(attribute.get()) : std::nullopt;
    if (!key || !value) {
      ++about_.attributes_left_out;
      continue;
    }
    const Handle type(::H5Aget_type(attribute.get()), ::H5Tclose);
    const std::optional<DType> dtype = dtype_by(type.get());
    std::string of_values = fmt::format("{}: {}", *key, *value);
    std::string of_types = dtype ? fmt::format(R"({}: "{}")", *key, to_string(*dtype)) : "";
    if (bytes_ + of_values.size() + of_types.size() > kMostBytes) {
      ++about_.attributes_left_out;
      continue;
    }
    bytes_ += of_values.size() + of_types.size();
    values.push_back(std::move(of_values));
    if (dtype) types.push_back(std::move(of_types));
  }
  const auto object_of = [](const std::vector<std::string>& members) {
    return members.empty() ? "" : fmt::format("{{{}}}", fmt::join(members, ", "));
  };
  return {object_of(values), object_of(types)};
}

void Attributes::add_file(hid_t file) { about_.attributes = of(file); }

void Attributes::add(const std::string& array, hid_t dataset) {
  if (SourceAttributes said = of(dataset); !said.values.empty()) {
    about_.array_attributes[array] = std::move(said);
  }
}

}  // namespace tuckfold::hdf5
