// The schema of a file as JSON: its arrays in order, and the user's metadata.
#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "base/fail.h"
#include "base/fill.h"
#include "base/json.h"
#include "container/format.h"
#include "container/frame.h"

namespace tuckfold {
namespace {

class SchemaReader {
 public:
  explicit SchemaReader(const std::string& path) : path_(path) {}

  Schema read(std::string_view text) const {
    const Json json = parse(text);
    const Json& arrays = member(json, "arrays", Json::Kind::Array);
    Schema schema;
    std::set<std::string> names;
    for (const Json& item : arrays.items) {
      schema.arrays.push_back(array(item));
      if (!names.insert(schema.arrays.back().name).second) corrupt("two arrays have the same name");
    }
    check_masks(schema.arrays);
    if (count_shown(schema.arrays) == 0) corrupt("no array");
    schema.metadata = member(json, "metadata", Json::Kind::Object).text;
    return schema;
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(Errc::CorruptData, "[open] '{}': its schema is broken ({}); repair it", path_, reason);
  }

  Json parse(std::string_view text) const {
    try {
      return Json::parse(text);
    } catch (const Error& error) {
      corrupt(error.what());
    }
  }

  const Json& member(const Json& of, std::string_view key, Json::Kind kind) const {
    const Json* found = of.find(key);
    if (found == nullptr || found->kind != kind) corrupt(fmt::format("no '{}'", key));
    return *found;
  }

  ArrayInfo array(const Json& json) const {
    ArrayInfo info;
    info.name = member(json, "name", Json::Kind::String).string;
    if (info.name.empty()) corrupt("an array without a name");
    const std::string& dtype = member(json, "dtype", Json::Kind::String).string;
    try {
      info.dtype = parse_dtype(dtype);
    } catch (const Error&) {
      fail(Errc::Unsupported,
           "[open] '{}': dtype '{}' is not known here; a newer tuckfold may read it", path_, dtype);
    }
    const Json& shape = member(json, "shape", Json::Kind::Array);
    if (shape.items.size() >= Shape::kMaxRank) corrupt("a sample of too many axes");
    for (const Json& axis : shape.items) info.shape.push_back(axis.whole());
    info.codec = spec_in_file(member(json, "codec", Json::Kind::String).string);
    info.samples_per_chunk = member(json, "samples_per_chunk", Json::Kind::Number).whole();
    const std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    if (info.samples_per_chunk < 1 || info.samples_per_chunk > most) {
      corrupt("samples_per_chunk is no count");
    }
    if (!has_elems(with_samples(info.samples_per_chunk, info.shape))) {
      corrupt(fmt::format("no sample has the shape {}", to_string(info.shape)));
    }
    if (const Json* fill = json.find("fill")) info.fill = fill_values(*fill, info.dtype);
    if (json.find("mask_of") != nullptr) {
      info.mask_of = member(json, "mask_of", Json::Kind::String).string;
      if (info.mask_of.empty()) corrupt("a mask of no array");
    }
    return info;
  }

  std::vector<FillValue> fill_values(const Json& json, DType dtype) const {
    if (json.kind != Json::Kind::Array || json.items.size() > kMostFillValues) {
      corrupt("fill values are no list");
    }
    std::vector<FillValue> fill;
    for (const Json& item : json.items) {
      double number = 0;
      const char* end = item.string.data() + item.string.size();
      const auto [stop, error] = std::from_chars(item.string.data(), end, number);
      // from_chars also takes "NaN", "infinity" and the like.
      const bool is_named = item.string == "nan" || item.string == "inf" || item.string == "-inf";
      const bool is_number = item.string.find_first_not_of("0123456789.eE+-") == std::string::npos;
      const bool whole = error == std::errc{} && stop == end && (is_named || is_number);
      const std::optional<FillValue> value =
          whole ? fill_value_in(dtype, number) : std::optional<FillValue>();
      if (!value) corrupt(fmt::format("{} has no fill value '{}'", to_string(dtype), item.string));
      fill.push_back(*value);
    }
    return fill;
  }

  // Masks stand last, each of another array, of its shape.
  void check_masks(std::span<const ArrayInfo> arrays) const {
    const std::size_t shown = count_shown(arrays);
    std::set<std::string_view> masked;
    for (std::size_t i = shown; i < arrays.size(); ++i) {
      const ArrayInfo& mask = arrays[i];
      const auto of = std::ranges::find(arrays.first(shown), mask.mask_of, &ArrayInfo::name);
      if (mask.mask_of.empty() || of == arrays.first(shown).end() || of->fill.empty() ||
          of->shape != mask.shape || mask.dtype != DType::U8 ||
          !masked.insert(mask.mask_of).second) {
        corrupt(fmt::format("'{}' is no mask of '{}'", mask.name, mask.mask_of));
      }
    }
  }

  static bool has_elems(const Shape& shape) {
    try {
      return shape.elems() > 0;
    } catch (const Error&) {
      return false;
    }
  }

  const std::string& path_;
};

}  // namespace

Shape with_samples(std::int64_t samples, const Shape& sample) {
  Shape shape{samples};
  for (const std::int64_t axis : sample) shape.push_back(axis);
  return shape;
}

std::size_t count_shown(std::span<const ArrayInfo> arrays) {
  const auto first_mask =
      std::ranges::find_if(arrays, [](const ArrayInfo& array) { return !array.mask_of.empty(); });
  return static_cast<std::size_t>(first_mask - arrays.begin());
}

std::optional<std::size_t> find_mask(std::span<const ArrayInfo> arrays, std::size_t array) {
  for (std::size_t i = arrays.size(); i > 0 && !arrays[i - 1].mask_of.empty(); --i) {
    if (arrays[i - 1].mask_of == arrays[array].name) return i - 1;
  }
  return {};
}

namespace {

// The members that few arrays have.
std::string fill_text(const ArrayInfo& array) {
  std::string text;
  if (!array.mask_of.empty()) {
    text += fmt::format(R"(, "mask_of": {})", json_string(array.mask_of));
  }
  if (array.fill.empty()) return text;
  std::vector<std::string> values;
  for (const FillValue& value : array.fill) {
    values.push_back(json_string(to_string(array.dtype, value)));
  }
  return text + fmt::format(R"(, "fill": [{}])", fmt::join(values, ", "));
}

}  // namespace

std::string schema_text(const Schema& schema) {
  std::vector<std::string> arrays;
  for (const ArrayInfo& array : schema.arrays) {
    arrays.push_back(fmt::format(
        R"({{"name": {}, "dtype": "{}", "shape": [{}], "codec": {}, "samples_per_chunk": {}{}}})",
        json_string(array.name), to_string(array.dtype), fmt::join(array.shape, ", "),
        json_string(array.codec.print()), array.samples_per_chunk, fill_text(array)));
  }
  return fmt::format(R"({{"arrays": [{}], "metadata": {}}})", fmt::join(arrays, ", "),
                     schema.metadata);
}

Schema parse_schema(std::string_view text, const std::string& path) {
  return SchemaReader(path).read(text);
}

}  // namespace tuckfold
