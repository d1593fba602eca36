// The beginning of a new file: arrays that can be written, the samples of their chunks, and
// metadata that must be JSON.
#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/fill.h"
#include "base/json.h"
#include "base/text_scan.h"
#include "codec/registry.h"
#include "container/resume.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

// About this much is packed together if samples can be unpacked alone: frame headers are then a
// small part of a file. Other codecs say it themselves (Codec::chunk_elems).
constexpr std::int64_t kChunkBytes = 256 << 10;
constexpr std::int64_t kMaxElems = std::int64_t{1} << 48;  // of a sample
constexpr std::int64_t kMaxStep = 64;  // between the samples of chunks of two arrays

// Arrays fill their chunks at common samples, not too far apart: a stopped writer can be resumed
// there.
void choose_samples_per_chunk(std::vector<ArrayInfo>& arrays) {
  const auto own = [](const ArrayInfo& array) {
    if (array.samples_per_chunk > 0) return array.samples_per_chunk;
    if (rows_independent(array.codec, with_samples(2, array.shape))) {
      return std::max<std::int64_t>(kChunkBytes / static_cast<std::int64_t>(array.sample_bytes()),
                                    1);
    }
    const Codec& last = row_of(array.codec.stages().back());
    return std::max<std::int64_t>(last.chunk_elems / array.shape.elems(), 1);
  };
  std::int64_t least = own(arrays[0]);
  for (const ArrayInfo& array : arrays) least = std::min(least, own(array));
  for (ArrayInfo& array : arrays) {
    if (array.samples_per_chunk > 0) continue;
    std::int64_t count = least;
    while (count * 2 <= own(array) && count < least * kMaxStep) count *= 2;
    array.samples_per_chunk = count;
  }
}

void check_fill(const ArrayInfo& array) {
  if (!array.mask_of.empty()) {
    invalid("[write] masks are made by the writer, got '{}'; give '{}' fill values instead",
            array.name, array.mask_of);
  }
  if (array.fill.size() > kMostFillValues) {
    invalid("[write] '{}' may have {} fill values, got {}", array.name, kMostFillValues,
            array.fill.size());
  }
  for (const FillValue& value : array.fill) {
    if (fill_value_in(array.dtype, value.value) == value) continue;
    invalid("[write] '{}' is {}, which has no value {}; give a fill value that it has", array.name,
            to_string(array.dtype), value.value);
  }
}

}  // namespace

void check_metadata(const std::string& json) {
  try {
    const bool object = Json::parse(json).kind == Json::Kind::Object;
    Json::parse("[[" + json + "]]");  // a schema nests it two levels deeper
    if (object) return;
  } catch (const Error& error) {
    invalid("[write] metadata must be a JSON object: {}", error.what());
  }
  invalid("[write] metadata must be a JSON object, got '{}'", json.substr(0, 40));
}

void check_arrays(std::vector<ArrayInfo>& arrays) {
  if (arrays.empty()) invalid("[write] a file needs at least one array, got none");
  std::set<std::string_view> names;
  for (const ArrayInfo& array : arrays) {
    if (array.name.empty()) invalid("[write] an array needs a name, got an empty one");
    if (find_bad_utf8(array.name) != std::string::npos) {
      invalid("[write] the name of an array must be UTF-8, got {}; give another (--rename)",
              tuckfold::quoted(array.name));
    }
    if (!names.insert(array.name).second) {
      invalid("[write] names of arrays must differ, got '{}' twice", array.name);
    }
    constexpr std::int64_t kMost = UINT32_MAX;
    if (array.samples_per_chunk < 0 || array.samples_per_chunk > kMost) {
      invalid("[write] samples_per_chunk must be 1..{} or 0, got {}", kMost,
              array.samples_per_chunk);
    }
    check_fill(array);
    if (array.shape.rank() == Shape::kMaxRank || array.shape.elems() == 0 ||
        array.shape.elems() > kMaxElems) {
      invalid("[write] a sample of '{}' must have 1..2^48 elements and at most {} axes, got {}",
              array.name, Shape::kMaxRank - 1, to_string(array.shape));
    }
  }
  choose_samples_per_chunk(arrays);
  for (const ArrayInfo& array : arrays) {
    try {
      layout(array.codec, array.dtype, with_samples(array.samples_per_chunk, array.shape));
    } catch (const Error& error) {
      fail(error.code(), "[write] '{}', samples of {}, {} in a chunk: {}", array.name,
           to_string(array.shape), array.samples_per_chunk, error.what());
    }
  }
}

void add_masks(std::vector<ArrayInfo>& arrays) {
  std::vector<ArrayInfo> masks;
  const auto is_taken = [&](const std::string& name) {
    return std::ranges::count(arrays, name, &ArrayInfo::name) > 0 ||
           std::ranges::count(masks, name, &ArrayInfo::name) > 0;
  };
  for (const ArrayInfo& array : arrays) {
    if (array.fill.empty() || is_exact(array.codec)) continue;
    std::string name = array.name + ".fill";
    while (is_taken(name)) name += '_';
    masks.push_back({.name = std::move(name),
                     .dtype = DType::U8,
                     .shape = array.shape,
                     .codec = CodecSpec::parse("zstd"),
                     .samples_per_chunk = array.samples_per_chunk,
                     .mask_of = array.name});
  }
  arrays.insert(arrays.end(), masks.begin(), masks.end());
}

}  // namespace tuckfold
