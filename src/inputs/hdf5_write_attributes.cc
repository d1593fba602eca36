#include "inputs/hdf5_write_attributes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/hdf5_session.h"

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

template <class T>
std::vector<T> numbers(std::span<const std::string_view> texts) {
  std::vector<T> values;
  for (const std::string_view text : texts) {
    const std::optional<T> value = number<T>(text);
    if (!value) return {};
    values.push_back(*value);
  }
  return values;
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

bool write_numbers(hid_t object, const std::string& name, std::span<const std::string_view> texts,
                   hid_t type) {
  const auto as = [&](hid_t usual, hid_t memory, const auto& values) {
    return write_list(object, name, type >= 0 ? type : usual, memory, values.size(), values.data());
  };
  if (const auto values = numbers<long long>(texts); !values.empty()) {
    const auto small = [](long long value) { return value == static_cast<std::int32_t>(value); };
    return as(std::ranges::all_of(values, small) ? H5T_STD_I32LE : H5T_STD_I64LE, H5T_NATIVE_LLONG,
              values);
  }
  if (const auto values = numbers<unsigned long long>(texts); !values.empty()) {
    return as(H5T_STD_U64LE, H5T_NATIVE_ULLONG, values);
  }
  const auto values = numbers<double>(texts);
  return !values.empty() && as(H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, values);
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

bool write_one(hid_t object, const std::string& name, const Json& value, hid_t type) {
  const bool is_list = value.kind == Kind::Array && !value.items.empty();
  const std::span<const Json> items = is_list ? std::span(value.items) : std::span(&value, 1);
  std::vector<std::string_view> texts;
  bool any = is_of_values(name) && type >= 0;
  for (const Json& item : items) {
    texts.push_back(number_text(item));
    any = any || item.kind == Kind::Number;
  }
  if (any && std::ranges::count(texts, std::string_view()) == 0) {
    return write_numbers(object, name, texts, is_of_values(name) ? type : H5I_INVALID_HID);
  }
  if (!std::ranges::all_of(items, [](const Json& i) { return i.kind == Kind::String; })) {
    return write_texts(object, name, {std::string(value.text)}, false);
  }
  std::vector<std::string> words;
  for (const Json& item : items) words.push_back(item.string);
  return write_texts(object, name, words, is_list);
}

}  // namespace

bool write_attributes(hid_t object, const Json& members, hid_t type) {
  for (std::size_t i = 0; i < members.keys.size(); ++i) {
    const std::string& name = members.keys[i];
    if (name.empty() || name.find('\0') != name.npos) continue;
    if (!write_one(object, name, members.items[i], type)) return false;
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
