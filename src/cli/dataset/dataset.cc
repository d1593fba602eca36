#include "cli/dataset/dataset.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/io/destination.h"
#include "base/parallel.h"
#include "cli/terminal/message.h"
#include "cli/terminal/stdio.h"
#include "container/trailing_data.h"

namespace tuckfold::cli {
namespace {

Shape parse_shape(const char* verb, std::string_view text) {
  std::vector<std::int64_t> axes;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("x,", at), text.size());
    std::int64_t axis = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, axis);
    if (error != std::errc{} || stop != text.data() + end || axis < 0) {
      invalid("[{}] --shape must be lengths of a sample's axes as in 3x32x32, got {}", verb, text);
    }
    axes.push_back(axis);
    at = end + 1;
  }
  return Shape(std::span<const std::int64_t>(axes));
}

}  // namespace

void add_select(Command& verb, std::vector<std::string>& names, const char* text) {
  verb.add_option("--select", names, text).type_name("NAME").one_at_a_time().delimiter(',');
}

void InputOptions::add_to(Command& verb, const char* select) {
  verb.add_option(
          "INPUT", files,
          "Files or folders with samples, - for standard input; several of one kind are one "
          "dataset")
      .type_name("");
  add_options_to(verb, select);
}

void InputOptions::add_names_to(Command& verb, const char* select) {
  add_select(verb, arrays, select);
  verb.add_option("--rename", rename, "Give an array another name; may be repeated")
      .type_name("OLD=NEW")
      .one_at_a_time();
}

void InputOptions::add_options_to(Command& verb, const char* select) {
  add_format_to(verb);
  add_names_to(verb, select);
}

void InputOptions::add_format_to(Command& verb) {
  std::string known;
  for (const SourceFormatInfo& row : list_source_formats()) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  verb.add_option("--format", format, "How to read them, else by their contents: " + known)
      .type_name("NAME");
  verb.add_option("--split", split, "Of folders with several: train, test or validation")
      .type_name("NAME");
  verb.add_flag("--side-by-side", side_by_side, "Each input is an array, named as its file");
  verb.add_option("--dtype", dtype, "Of raw inputs: " + dtype_names()).type_name("T");
  verb.add_option("--shape", shape, "Of raw inputs: the shape of one sample, as 3x32x32")
      .type_name("SHAPE");
  fill.add_to(verb);
  verb.add_flag("--allow-external", allow_external,
                "Let HDF5 files lead to others (external storage and links, virtual datasets); "
                "libhdf5 is not made for hostile files");
}

std::map<std::string, std::string, std::less<>> InputOptions::renames(const char* verb) const {
  std::map<std::string, std::string, std::less<>> names;
  for (const std::string& pair : rename) {
    const std::size_t at = pair.find('=');
    if (at == pair.npos || at == 0 || at + 1 == pair.size()) {
      invalid("[{}] --rename takes OLD=NEW, got {}", verb, pair);
    }
    if (!names.emplace(pair.substr(0, at), pair.substr(at + 1)).second) {
      invalid("[{}] --rename takes one new name for an array, got two for '{}'", verb,
              pair.substr(0, at));
    }
  }
  return names;
}

SourceOptions InputOptions::source_options(const char* verb) const {
  SourceOptions options{.format = format,
                        .arrays = arrays,
                        .rename = renames(verb),
                        .side_by_side = side_by_side,
                        .allow_external = allow_external,
                        .split = split};
  if (!dtype.empty()) options.dtype = parse_dtype(dtype);
  if (!shape.empty()) options.sample = parse_shape(verb, shape);
  return options;
}

std::unique_ptr<Source> InputOptions::open(const char* verb, bool quiet) const {
  if (files.empty()) invalid("[{}] nothing to read; name a file or folder with samples", verb);
  const SourceOptions options = source_options(verb);
  check_stdin_once(verb, files);
  std::vector<std::filesystem::path> paths;
  for (const std::string& file : files) paths.emplace_back(input_path(verb, file, quiet));
  std::unique_ptr<Source> source = open_source(paths, options);
  fill.apply(verb, source->arrays(),
             [&](std::size_t array, FillValue value) { source->add_fill(array, value); });
  return source;
}

void add_strict(Command& verb, bool& strict) {
  verb.add_flag("--strict", strict, "Exit with 3 instead of warning if samples may be missing");
}

FileReader open_reader(const std::string& path, bool strict) {
  FileReader reader(path, {.strict = strict});
  for (const TrailingData& trailing : reader.trailing_data()) {
    warn("{}", to_string(trailing));
  }
  return reader;
}

std::uint64_t packed_bytes_of(const FileReader& reader, std::size_t array) {
  std::uint64_t bytes = 0;
  for (const ChunkInfo& chunk : reader.chunks(array)) bytes += chunk.frame_bytes;
  const std::optional<std::size_t> mask = reader.mask(array);
  if (!mask) return bytes;
  for (const ChunkInfo& chunk : reader.chunks(*mask)) bytes += chunk.frame_bytes;
  return bytes;
}

SampleSlice parse_range(const char* verb, std::string_view text, std::int64_t samples) {
  const auto number = [&](std::string_view part) {
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || stop != part.data() + part.size()) {
      invalid("[{}] a range is FIRST:END, FIRST:END:STEP or one number, got {}", verb, text);
    }
    return value;
  };
  // Negative numbers count from the end.
  const auto place = [&](std::string_view part, std::int64_t otherwise) {
    if (part.empty()) return otherwise;
    const std::int64_t value = number(part);
    return value < 0 ? value + samples : value;
  };
  const auto outside = [&] {
    invalid("[{}] a range must be in 0:{}, the samples of the file, got {}", verb, samples, text);
  };
  const std::size_t colon = text.find(':');
  if (colon == text.npos) {
    const std::int64_t value = number(text);
    const std::int64_t one = value < 0 ? value + samples : value;
    if (one < 0 || one >= samples) outside();
    return {one, 1};
  }
  const std::string_view rest = text.substr(colon + 1);
  const std::size_t second = rest.find(':');
  const std::int64_t first = place(text.substr(0, colon), 0);
  const std::int64_t end = place(rest.substr(0, second), samples);
  const std::string_view step_text = second == rest.npos ? "" : rest.substr(second + 1);
  const std::int64_t step = step_text.empty() ? 1 : number(step_text);
  if (step < 1) invalid("[{}] the step of a range must be 1 or more, got {}", verb, text);
  if (first < 0 || first > samples || end < 0 || end > samples) outside();
  if (end <= first) return {first, 0, step};  // as in Python
  return {first, (end - first) / step + ((end - first) % step != 0 ? 1 : 0), step};
}

void compact(const SampleSlice& slice, std::size_t sample_bytes, std::byte* samples) {
  for (std::int64_t i = 1; slice.step > 1 && i < slice.samples; ++i) {
    std::memmove(samples + static_cast<std::size_t>(i) * sample_bytes,
                 samples + static_cast<std::size_t>(i * slice.step) * sample_bytes, sample_bytes);
  }
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

void check_absent(const char* verb, const std::string& path, bool force) {
  const Destination destination = find_destination(verb, path);
  if (!force && destination.exists && !destination.stream) {
    invalid("[{}] '{}' exists; add --force to write over it, or name another file", verb, path);
  }
}

std::int64_t batch_samples(std::uint64_t bytes_of_sample, int threads) {
  constexpr std::uint64_t kBytesOfThread = 8 << 20;
  const std::uint64_t bytes = kBytesOfThread * static_cast<std::uint64_t>(threads);
  return static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, bytes / std::max<std::uint64_t>(1, bytes_of_sample)));
}

Parts cut_at_chunks(const FileReader& reader, std::size_t array, const SampleSlice& slice) {
  const std::int64_t last = slice.first + slice.span();
  // The samples of the slice that are in a chunk; some chunks have none.
  const auto within = [slice, last](const ChunkInfo& chunk) -> SampleSlice {
    const std::int64_t from = std::max(slice.first, chunk.first);
    const std::int64_t to = std::min(last, chunk.first + chunk.samples);
    const std::int64_t skipped = (from - slice.first + slice.step - 1) / slice.step;
    const std::int64_t first = slice.at(skipped);
    return {first, first >= to ? 0 : (to - 1 - first) / slice.step + 1, slice.step};
  };
  const auto ends_after = [](std::int64_t sample, const ChunkInfo& chunk) {
    return sample < chunk.first + chunk.samples;
  };
  std::span<const ChunkInfo> chunks = reader.chunks(array);
  const auto begin = std::upper_bound(chunks.begin(), chunks.end(), slice.first, ends_after);
  auto end = begin;
  Parts parts;
  for (; end != chunks.end() && end->first < last; ++end) {
    parts.most = std::max(parts.most, within(*end).span());
  }
  chunks = {begin, end};
  parts.count = std::ssize(chunks);
  parts.at = [chunks, within](std::int64_t i) {
    return within(chunks[static_cast<std::size_t>(i)]);
  };
  return parts;
}

Array trial_part_of(const SourceArray& array, std::int64_t samples, std::int64_t most,
                    const std::function<void(std::int64_t, std::byte*)>& read, Fill fill) {
  const std::int64_t elems = std::max<std::int64_t>(1, array.sample.elems());
  const std::int64_t count = std::min(samples, std::max<std::int64_t>(1, most / elems));
  std::vector<std::int64_t> axes = {count};
  axes.insert(axes.end(), array.sample.begin(), array.sample.end());
  Array result{.name = array.name,
               .stored = std::string(to_string(array.dtype)),
               .stored_bytes = static_cast<std::size_t>(count) * array.sample_bytes(),
               .dtype = array.dtype,
               .shape = Shape(std::span<const std::int64_t>(axes)),
               .values = HugeBuffer(static_cast<std::size_t>(count) * array.sample_bytes())};
  for (std::int64_t i = 0; i < count; ++i) {  // spread evenly
    const std::int64_t at = count == 1 ? 0 : i * (samples - 1) / (count - 1);
    read(at, result.values.data() + static_cast<std::size_t>(i) * array.sample_bytes());
  }
  if (fill == Fill::Replace) replace_fill(result, array.fill);
  return result;
}

Array trial_part_of(const Source& source, std::size_t array, std::int64_t most, Fill fill) {
  return trial_part_of(
      source.arrays()[array], source.samples(), most,
      [&](std::int64_t sample, std::byte* to) { source.read(array, sample, 1, to); }, fill);
}

void read_samples(const Source& source, std::size_t array, std::int64_t first, std::int64_t count,
                  std::byte* out, int threads) {
  const std::size_t bytes = source.arrays()[array].sample_bytes();
  const std::int64_t parts = std::min<std::int64_t>(count, 4 * std::int64_t{threads});
  std::mutex lock;
  std::exception_ptr thrown;
  parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) noexcept {
    const std::int64_t from = begin * count / parts, to = end * count / parts;
    try {
      source.read(array, first + from, to - from, out + static_cast<std::size_t>(from) * bytes);
    } catch (...) {
      const std::lock_guard guard(lock);
      thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace tuckfold::cli
