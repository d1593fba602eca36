#include "cli/npy_out.h"

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "cli/output.h"
#include "container/format.h"
#include "container/npy.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

// bf16 is the upper half of an f32.
void widen(const std::byte* from, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[4 * i] = to[4 * i + 1] = std::byte{0};
    to[4 * i + 2] = from[2 * i];
    to[4 * i + 3] = from[2 * i + 1];
  }
}

// Whether NAME.npy stays in the folder: names come from files that others made.
bool stays_inside(const std::string& name) {
  const fs::path path = fs::path(name + ".npy").lexically_normal();
  return path.is_relative() && *path.begin() != ".." && name.find('\0') == name.npos;
}

}  // namespace

std::string NpyOut::path_of(const SourceArray& array) const {
  if (one_file()) return out;
  if (!stays_inside(array.name)) {
    invalid("[{}] array '{}' would be written outside of '{}'; name OUT.npy for it alone", verb,
            array.name, out);
  }
  return (fs::path(out) / (array.name + ".npy")).string();
}

void NpyOut::write(const std::vector<SourceArray>& arrays, const SampleRange& range, bool quiet,
                   const Read& read) const {
  std::uint64_t bytes = 0;
  for (const SourceArray& array : arrays) {
    if (out != "-") check_absent(verb, path_of(array), force);
    bytes += static_cast<std::uint64_t>(range.samples) * sample_bytes(array);
  }
  Meter meter("unpacking", bytes, quiet);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    // What cannot be made is said when the file cannot be.
    std::error_code refused;
    if (!one_file()) fs::create_directories(fs::path(path_of(arrays[i])).parent_path(), refused);
    write_one(arrays[i], i, range, read, meter);
  }
}

void NpyOut::write_one(const SourceArray& array, std::size_t number, const SampleRange& range,
                       const Read& read, Meter& meter) const {
  const bool wider = header && array.dtype == DType::BF16;
  Output file(verb, path_of(array));
  if (header) {
    const std::string front = npy_header_text(wider ? DType::F32 : array.dtype,
                                              with_samples(range.samples, array.sample));
    file.write(front.data(), front.size());
  }
  const std::size_t each = sample_bytes(array);
  const std::int64_t batch = std::min(batch_samples(each, threads), range.samples);
  const HugeBuffer room(static_cast<std::size_t>(batch) * each);
  const HugeBuffer wide(wider ? 2 * room.size() : 0);
  for (std::int64_t at = 0; at < range.samples;) {
    const std::int64_t count = std::min(batch, range.samples - at);
    read(number, range.first + at, count, room.data());
    const std::size_t bytes = static_cast<std::size_t>(count) * each;
    if (wider) widen(room.data(), static_cast<std::int64_t>(bytes / 2), wide.data());
    wider ? file.write(wide.data(), 2 * bytes) : file.write(room.data(), bytes);
    at += count;
    meter.add(bytes);
  }
  file.finish();
}

}  // namespace tuckfold::cli
