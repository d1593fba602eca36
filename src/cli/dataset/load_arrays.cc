#include "cli/dataset/load_arrays.h"

#include <filesystem>
#include <fstream>

#include "base/dtype.h"
#include "base/fail.h"
#include "cli/dataset/samples.h"
#include "cli/terminal/stdio.h"
#include "inputs/formats.h"

namespace tuckfold::cli {
namespace {

// One .npy file, all of which is the array: its leading axis need not count samples.
bool is_plain_npy(const char* verb, const InputOptions& inputs) {
  if (inputs.files.size() != 1 || !inputs.format.empty() || !inputs.dtype.empty() ||
      !inputs.shape.empty() || !inputs.arrays.empty() || inputs.side_by_side) {
    return false;
  }
  const std::string& file = inputs.files.front();
  if (file.ends_with(".npy")) return true;
  const std::string path = input_path(verb, file);
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return false;
  std::string head(6, '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), 6);
  return head == "\x93NUMPY";
}

std::string describe(const Samples& samples) {
  std::string text;
  for (const SourceArray& array : samples.arrays()) {
    text += fmt::format("{}{} ({} {}x{})", text.empty() ? "" : ", ", array.name,
                        to_string(array.dtype), samples.samples(), to_string(array.sample));
  }
  return text;
}

// Numbers of the arrays to take.
std::vector<std::size_t> pick(const char* verb, const InputOptions& inputs, const Samples& samples,
                              Take take) {
  std::vector<std::size_t> picked;
  const bool few = samples.arrays().size() == 1 || (!inputs.arrays.empty() && take == Take::Each);
  for (std::size_t a = 0; a < samples.arrays().size(); ++a) {
    if (few || samples.arrays()[a].sample.rank() >= 2) picked.push_back(a);
  }
  if (picked.empty() || (take == Take::One && picked.size() > 1)) {
    invalid("[{}] '{}' has the arrays {}; name {} with --select", verb, inputs.files.front(),
            describe(samples), take == Take::One ? "one" : "those to take");
  }
  return picked;
}

void widen(DType from, const std::byte* values, std::int64_t elems, float* out) {
  with_element(from, [&](auto element) {
    using T = decltype(element);
    const T* in = reinterpret_cast<const T*>(values);
    for (std::int64_t i = 0; i < elems; ++i) {
      if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
        out[i] = to_float(in[i]);
      } else {
        out[i] = static_cast<float>(in[i]);
      }
    }
  });
}

Array load(const Samples& samples, std::size_t number, ReadAs read_as, int threads) {
  const SourceArray& info = samples.arrays()[number];
  const bool alone = samples.arrays().size() == 1;
  Shape shape{samples.samples()};
  for (const std::int64_t axis : info.sample) shape.push_back(axis);
  const std::string& file = samples.name();
  Array array{.name = alone ? file : fmt::format("{}:{}", file, info.name),
              .stored = std::string(to_string(info.dtype)),
              .stored_bytes = static_cast<std::size_t>(samples.samples()) * info.sample_bytes(),
              .dtype = info.dtype,
              .shape = shape,
              .values = {},
              .scale_factor = samples.scale_factor(number)};
  need_values(array);
  array.values = HugeBuffer(array.stored_bytes);
  samples.read(number, 0, samples.samples(), array.values.data(), threads);
  replace_fill(array, info.fill);
  if (dtype_read(info.dtype, read_as) == info.dtype) return array;
  HugeBuffer wide(static_cast<std::size_t>(shape.elems()) * sizeof(float));
  widen(info.dtype, array.values.data(), shape.elems(), reinterpret_cast<float*>(wide.data()));
  array.values = std::move(wide);
  array.dtype = dtype_read(info.dtype, read_as);
  return array;
}

}  // namespace

std::vector<Array> load_arrays(const char* verb, const InputOptions& inputs, ReadAs read_as,
                               Take take, int threads) {
  std::vector<Array> arrays;
  if (is_plain_npy(verb, inputs)) {
    Array array = load_array(inputs.files.front(), read_as);
    SourceArray info{
        .name = stem_of(inputs.files.front()), .dtype = array.dtype, .sample = array.shape};
    inputs.fill.apply(verb, std::span(&info, 1),
                      [&](std::size_t, FillValue value) { info.fill.push_back(value); });
    replace_fill(array, info.fill);
    arrays.push_back(std::move(array));
    return arrays;
  }
  const Samples samples(verb, inputs);
  for (const std::size_t number : pick(verb, inputs, samples, take)) {
    arrays.push_back(load(samples, number, read_as, threads));
  }
  return arrays;
}

}  // namespace tuckfold::cli
