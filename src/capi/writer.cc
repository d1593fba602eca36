// Files in C: writing.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fill.h"
#include "base/json.h"
#include "capi/dataset_writer.h"
#include "capi/handles.h"
#include "tuckfold/version.h"

using namespace tuckfold;        // NOLINT(google-build-using-namespace)
using namespace tuckfold::capi;  // NOLINT(google-build-using-namespace)

struct tuckfold_writer {
  DatasetWriter writer;
  std::string json{};
  std::mutex mutex{};
  pid_t opened_by = ::getpid();
};

namespace {

tuckfold_write_options options_of(const tuckfold_write_options* given_options) {
  tuckfold_write_options options{};
  if (given_options == nullptr) return options;
  const std::size_t bytes = given_options->struct_bytes;
  if (bytes < sizeof bytes) {
    invalid("[write] struct_bytes must be sizeof(tuckfold_write_options) = {}, got {}",
            sizeof options, bytes);
  }
  std::memcpy(&options, given_options, std::min(bytes, sizeof options));
  const char* first = reinterpret_cast<const char*>(given_options);
  if (bytes > sizeof options &&
      std::any_of(first + sizeof options, first + bytes, [](char c) { return c != 0; })) {
    fail(Errc::Unsupported, "[write] the options have fields that tuckfold {} does not know",
         version());
  }
  return options;
}

ArrayInfo info_of(const tuckfold_array& array) {
  const tuckfold_tensor as_tensor{.data = nullptr,
                                  .dtype = array.dtype,
                                  .rank = array.rank,
                                  .shape = array.shape,
                                  .strides = nullptr,
                                  .device = TUCKFOLD_CPU};
  const TensorView sample = view_of("write", &as_tensor);
  ArrayInfo info{.name = &given("write", "the name of an array", array.name),
                 .dtype = sample.dtype,
                 .shape = sample.shape,
                 .codec = CodecSpec::parse(array.codec == nullptr ? "zstd" : array.codec),
                 .samples_per_chunk = array.samples_per_chunk};
  if (array.fill_count > 0) given("write", "the fill values", array.fill);
  for (std::size_t i = 0; i < array.fill_count; ++i) {
    const std::optional<FillValue> value = fill_value_in(info.dtype, array.fill[i]);
    if (!value) {
      invalid("[write] '{}' is {}, which has no value {}", info.name, to_string(info.dtype),
              array.fill[i]);
    }
    info.fill.push_back(*value);
  }
  return info;
}

ArrayCheck check_of(const tuckfold_array& array) {
  if (array.check < 0 || array.check > TUCKFOLD_BOUND) {
    invalid("[write] check must be 0, TUCKFOLD_MEASURE or TUCKFOLD_BOUND, got {}", array.check);
  }
  if (array.check != TUCKFOLD_BOUND) return {.measure = array.check == TUCKFOLD_MEASURE};
  if (!(array.max_error >= 0) || !std::isfinite(array.max_error)) {
    invalid("[write] max_error must be 0 or a number above, got {}", array.max_error);
  }
  return {.measure = true, .max_error = array.max_error};
}

WriteMode mode_of(std::int32_t mode) {
  switch (mode) {
    case TUCKFOLD_CREATE: return WriteMode::Create;
    case TUCKFOLD_RESUME: return WriteMode::Resume;
    case TUCKFOLD_APPEND: return WriteMode::Append;
    default: break;
  }
  invalid("[write] mode must be TUCKFOLD_CREATE, TUCKFOLD_RESUME or TUCKFOLD_APPEND, got {}", mode);
}

// JSON has neither NaN nor infinities.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string writer_json(const DatasetWriter& writer) {
  std::vector<std::string> arrays;
  for (std::size_t i = 0; i < writer.arrays().size(); ++i) {
    const ArrayInfo& array = writer.arrays()[i];
    const WrittenArray written = writer.written(i);
    const Sums& sums = written.sums;
    const bool lost = sums.lost > 0;
    arrays.push_back(fmt::format(
        R"({{"name": {}, "dtype": "{}", "shape": [{}], "codec": {}, "packed_bytes": {}, )"
        R"("measured": {}, "psnr_db": {}, "max_error": {}, "range": {}, "lost": {}, )"
        R"("changed": {}, "filled": {}, "too_few": {}, "past_bound": {}}})",
        json_string(array.name), to_string(array.dtype), fmt::join(array.shape, ", "),
        json_string(array.codec.print()), written.packed_bytes, written.measured,
        number(sums.psnr_db(sums.range())), lost ? "null" : number(sums.max_error),
        number(sums.range()), sums.lost, sums.changed, sums.filled, written.too_few,
        written.past_bound));
  }
  return fmt::format(R"({{"samples": {}, "arrays": [{}]}})", writer.samples(),
                     fmt::join(arrays, ", "));
}

tuckfold_writer& own(tuckfold_writer* writer) {
  tuckfold_writer& one = given("write", "the writer", writer);
  if (one.opened_by != ::getpid()) {
    invalid("[write] process {} has opened this writer, and {} may not use it; open one here",
            one.opened_by, ::getpid());
  }
  return one;
}

}  // namespace

tuckfold_status tuckfold_writer_open(const char* path, const tuckfold_array* arrays, size_t count,
                                     const tuckfold_write_options* given_options,
                                     tuckfold_writer** writer) {
  return guarded([&] {
    tuckfold_writer*& to = given("write", "the place for the writer", writer);
    to = nullptr;
    const tuckfold_write_options options = options_of(given_options);
    if (options.shards < 0) invalid("[write] shards must be 0 or more, got {}", options.shards);
    if (options.samples < 0) invalid("[write] samples must be 0 or more, got {}", options.samples);
    DatasetRequest request{.path = &given("write", "the path", path),
                           .arrays = {},
                           .force = options.force != 0,
                           .shards = options.shards,
                           .samples = options.samples};
    request.options = {.mode = mode_of(options.mode),
                       .threads = options.threads,
                       .metadata = options.metadata == nullptr ? "" : options.metadata,
                       .seed = options.seed,
                       .sync = options.no_sync == 0,
                       .origin = {.values = options.origin}};
    if (count > 0) given("write", "the arrays", arrays);
    for (std::size_t i = 0; i < count; ++i) {
      request.arrays.push_back(info_of(arrays[i]));
      request.options.checks.push_back(check_of(arrays[i]));
    }
    to = new tuckfold_writer{.writer = DatasetWriter(std::move(request))};
  });
}

tuckfold_status tuckfold_writer_write(tuckfold_writer* writer, const tuckfold_tensor* batch,
                                      size_t count) {
  return guarded([&] {
    tuckfold_writer& one = own(writer);
    if (count > 0) given("write", "the batch", batch);
    std::vector<ConstTensorView> views;
    for (std::size_t i = 0; i < count; ++i) views.emplace_back(view_of("write", batch + i));
    const std::lock_guard lock(one.mutex);
    one.writer.write(views);
  });
}

tuckfold_status tuckfold_writer_finish(tuckfold_writer* writer) {
  return guarded([&] {
    tuckfold_writer& one = own(writer);
    const std::lock_guard lock(one.mutex);
    one.writer.finish();
  });
}

const char* tuckfold_writer_json(tuckfold_writer* writer) {
  const char* json = "{}";
  guarded([&] {
    tuckfold_writer& one = own(writer);
    const std::lock_guard lock(one.mutex);
    one.json = writer_json(one.writer);
    json = one.json.c_str();
  });
  return json;
}

void tuckfold_writer_close(tuckfold_writer* writer, int32_t keep) {
  // In a forked child the file is its parent's: undoing an append here would undo it there.
  if (writer == nullptr || writer->opened_by != ::getpid()) return;
  if (keep == 0) writer->writer.discard();
  delete writer;
}

tuckfold_status tuckfold_write_manifest(const char* path, const char* const* shards, size_t count) {
  return guarded([&] {
    const std::string to = &given("write", "the path", path);
    if (count > 0) given("write", "the shards", shards);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i)
      names.emplace_back(&given("write", "a shard", shards[i]));
    write_manifest(to, names);
  });
}
