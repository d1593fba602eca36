#include "inputs/hdf5_write_attributes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "inputs/hdf5_session.h"
#include "inputs/hdf5_types.h"

namespace tuckfold::hdf5 {
namespace {

using Kind = Json::Kind;

// Conventions of netCDF that are about the values of their array.
bool is_of_values(std::string_view name) {
  constexpr std::array kNames = {"_FillValue", "missing_value", "valid_min",
                                 "valid_max",  "valid_range",   "flag_values"};
  return std::ranges::find(kNames, name) != kNames.end();
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// JSON has no NaN and infinities: metadata has them as texts.
std::string_view number_text(const Json& value) {
  if (value.kind == Kind::Number) return value.text;
  const bool special =
      value.kind == Kind::String && (value.string == "nan" || value.string == "-nan" ||
                                     value.string == "inf" || value.string == "-inf");
  return special ? std::string_view(value.string) : std::string_view();
}

// A number as a value of a dtype; nothing where that cannot hold it. f32 and f16 are rounded once.
template <class T>
std::optional<T> value_in(std::string_view text) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) {
    return number<T>(text);
  } else if constexpr (std::is_same_v<T, F16>) {
    const std::optional<float> value = number<float>(text);
    if (!value || (std::isfinite(*value) && std::abs(*value) > kMaxF16)) return std::nullopt;
    return to_f16(*value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return std::nullopt;  // HDF5 lacks it
  } else {
    if (const std::optional<T> whole = number<T>(text)) return whole;
    const std::optional<double> value = number<double>(text);  // such as 255.0
    const double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (!value || *value != std::trunc(*value) || *value >= beyond ||
        *value < static_cast<double>(std::numeric_limits<T>::min())) {
      return std::nullopt;
    }
    return static_cast<T>(*value);
  }
}

bool write(hid_t object, const std::string& name, hid_t type, hid_t memory, hid_t space,
           const void* values) {
  const Handle attribute(::H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
                         ::H5Aclose);
  return attribute && ::H5Awrite(attribute.get(), memory, values) >= 0;
}

// A list, also of one: netCDF has no scalars.
bool write_list(hid_t object, const std::string& name, hid_t type, hid_t memory, std::size_t count,
                const void* values) {
  const hsize_t length = count;
  const Handle space(::H5Screate_simple(1, &length, nullptr), ::H5Sclose);
  return write(object, name, type, memory, space.get(), values);
}

// Writes numbers in the dtype; nothing where that cannot hold them all.
std::optional<bool> write_numbers(hid_t object, const std::string& name,
                                  std::span<const std::string_view> texts, DType dtype) {
  return with_element(dtype, [&]<class T>(T) -> std::optional<bool> {
    std::vector<T> values;
    for (const std::string_view text : texts) {
      const std::optional<T> value = value_in<T>(text);
      if (!value) return std::nullopt;
      values.push_back(*value);
    }
    const Handle type = type_of(dtype);
    return write_list(object, name, type.get(), type.get(), values.size(), values.data());
  });
}

// The dtypes to try, in order: that of the attribute, that of its array where netCDF has it so, and
// what the numbers themselves say, as of metadata without types.
std::vector<DType> dtypes_for(std::string_view name, std::span<const std::string_view> texts,
                              std::optional<DType> noted, std::optional<DType> array) {
  std::vector<DType> dtypes;
  const auto add = [&](std::optional<DType> dtype) {
    if (dtype && dtype != DType::Bool && dtype != DType::BF16) dtypes.push_back(*dtype);
  };
  if (name == "_FillValue") add(array);  // netCDF allows no other
  add(noted);
  if (is_of_values(name)) add(array);
  const bool whole = std::ranges::all_of(texts, [](std::string_view text) {
    return text.find_first_not_of("-0123456789") == text.npos;
  });
  if (whole) dtypes.insert(dtypes.end(), {DType::I32, DType::I64, DType::U64});
  dtypes.push_back(DType::F64);
  return dtypes;
}

// The dtype that metadata note for an attribute; others may have written them, so it may be anything.
std::optional<DType> noted_dtype(const Json* types, std::string_view name) {
  const Json* said = types == nullptr ? nullptr : types->find(name);
  if (said == nullptr || said->kind != Kind::String) return std::nullopt;
  const auto found = std::ranges::find(kDTypes, std::string_view(said->string),
                                       [](DType dtype) { return to_string(dtype); });
  return found == kDTypes.end() ? std::nullopt : std::optional(*found);
}

bool write_texts(hid_t object, const std::string& name, const std::vector<std::string>& texts,
                 bool is_list) {
  const Handle type(::H5Tcopy(H5T_C_S1), ::H5Tclose);
  ::H5Tset_size(type.get(), H5T_VARIABLE);
  ::H5Tset_cset(type.get(), H5T_CSET_UTF8);
  std::vector<const char*> values;
  for (const std::string& text : texts) values.push_back(text.c_str());
  if (is_list)
    return write_list(object, name, type.get(), type.get(), values.size(), values.data());
  const Handle space(::H5Screate(H5S_SCALAR), ::H5Sclose);
  return write(object, name, type.get(), type.get(), space.get(), values.data());
}

bool write_one(hid_t object, const std::string& name, const Json& value, std::optional<DType> noted,
               std::optional<DType> array) {
  const bool is_list = value.kind == Kind::Array && !value.items.empty();
  const std::span<const Json> items = is_list ? std::span(value.items) : std::span(&value, 1);
  std::vector<std::string_view> texts;
  bool any = noted || (is_of_values(name) && array);  // "nan" alone may be a word
  for (const Json& item : items) {
    texts.push_back(number_text(item));
    any = any || item.kind == Kind::Number;
  }
  if (any && std::ranges::count(texts, std::string_view()) == 0) {
    for (const DType dtype : dtypes_for(name, texts, noted, array)) {
      if (const std::optional<bool> done = write_numbers(object, name, texts, dtype)) return *done;
    }
  }
  if (!std::ranges::all_of(items, [](const Json& i) { return i.kind == Kind::String; })) {
    return write_texts(object, name, {std::string(value.text)}, false);
  }
  std::vector<std::string> words;
  for (const Json& item : items) words.push_back(item.string);
  return write_texts(object, name, words, is_list);
}

}  // namespace

bool write_attributes(hid_t object, const AttributesJson& attributes, std::optional<DType> array) {
  if (attributes.values == nullptr) return true;
  const Json& members = *attributes.values;
  for (std::size_t i = 0; i < members.keys.size(); ++i) {
    const std::string& name = members.keys[i];
    if (name.empty() || name.find('\0') != name.npos) continue;
    const std::optional<DType> noted = noted_dtype(attributes.types, name);
    if (!write_one(object, name, members.items[i], noted, array)) return false;
  }
  return true;
}

bool write_fill(hid_t dataset, std::span<const FillValue> fill, hid_t type) {
  const auto write_all = [&](const char* name, std::span<const FillValue> values) {
    std::vector<double> numbers;
    for (const FillValue& value : values) numbers.push_back(value.value);
    return numbers.empty() ||
           write_list(dataset, name, type, H5T_NATIVE_DOUBLE, numbers.size(), numbers.data());
  };
  if (fill.empty() || ::H5Aexists(dataset, "_FillValue") > 0 ||
      ::H5Aexists(dataset, "missing_value") > 0) {
    return true;
  }
  return write_all("_FillValue", fill.first(1)) && write_all("missing_value", fill.subspan(1));
}

}  // namespace tuckfold::hdf5
