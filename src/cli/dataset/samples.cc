#include "cli/dataset/samples.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/fail.h"
#include "base/fill.h"
#include "cli/dataset/scaled.h"
#include "cli/terminal/stdio.h"
#include "cli/verbs/verbs.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

std::vector<SourceArray> arrays_of(const FileReader& file) {
  std::vector<SourceArray> arrays;
  for (const ArrayInfo& array : file.arrays()) {
    arrays.push_back(
        {.name = array.name, .dtype = array.dtype, .sample = array.shape, .fill = array.fill});
  }
  return arrays;
}

// "image f32 3x32x32, label i64 (fill values -1)": arrays of one file that another lacks.
std::string text_of_others(std::span<const SourceArray> arrays,
                           std::span<const SourceArray> others) {
  std::vector<std::string> found;
  for (const SourceArray& array : arrays) {
    if (std::find(others.begin(), others.end(), array) != others.end()) continue;
    std::string text =
        fmt::format("{} {} {}", array.name, to_string(array.dtype), to_string(array.sample));
    std::vector<std::string> fill;
    for (const FillValue& value : array.fill) fill.push_back(to_string(array.dtype, value));
    if (!fill.empty()) text += fmt::format(" (fill values {})", fmt::join(fill, ", "));
    found.push_back(std::move(text));
  }
  return found.empty() ? "nothing else" : fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

bool is_tuck(const std::string& path) {
  if (path.ends_with(".tuck")) return true;
  std::error_code unreadable;
  // Opening a pipe without a writer would block.
  if (!std::filesystem::is_regular_file(path, unreadable)) return false;
  std::string head(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), std::ssize(head));
  head.resize(static_cast<std::size_t>(file.gcount()));
  if (head.starts_with("TuckFile")) return true;
  // Bare values may begin with any byte.
  return head.starts_with("{") &&
         (path.ends_with(".json") || head.find("tuckfold_manifest") != head.npos);
}

Samples::Samples(const char* verb, const InputOptions& inputs) {
  if (!inputs.files.empty()) name_ = inputs.files.front();
  if (inputs.files.size() > 1) name_ += fmt::format(" and {} more", inputs.files.size() - 1);
  check_stdin_once(verb, inputs.files);
  const auto packed = std::ranges::count_if(inputs.files, [&](const std::string& path) {
    return is_tuck(input_path(verb, path));  // for "-" what it holds
  });
  if (packed == 0) {
    source_ = inputs.open(verb);
    arrays_.assign(source_->arrays().begin(), source_->arrays().end());
    samples_ = source_->samples();
    return;
  }
  if (packed != std::ssize(inputs.files)) {
    invalid("[{}] files of one dataset are of one kind, but only {} of {} are .tuck files; {}",
            verb, packed, inputs.files.size(), "pack the others, or name them with --against");
  }
  open_files(verb, inputs);
}

void Samples::open_files(const char* verb, const InputOptions& inputs) {
  if (!inputs.format.empty() || !inputs.dtype.empty() || !inputs.shape.empty()) {
    invalid("[{}] '{}' has its own dtypes and shapes; leave out --format, --dtype and --shape",
            verb, inputs.files.front());
  }
  for (const std::string& path : inputs.files) {
    files_.push_back(open_reader(input_path(verb, path), inputs.strict));
    const std::vector<SourceArray> here = arrays_of(files_.back());
    const std::vector<SourceArray> first = arrays_of(files_.front());
    if (here != first) {
      invalid(
          "[{}] '{}' has other arrays than '{}': {}, where that has {}; leave it out, or convert "
          "it first",
          verb, path, inputs.files.front(), text_of_others(here, first),
          text_of_others(first, here));
    }
    samples_ += files_.back().samples();
  }
  const std::vector<SourceArray> all = arrays_of(files_.front());
  std::vector<std::string_view> names;
  for (const SourceArray& array : all) names.push_back(array.name);
  const auto number = [&](const char* option, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      invalid("[{}] {} of '{}': {}", verb, option, name_, unknown_text("array", name, names));
    }
    return static_cast<std::size_t>(found - names.begin());
  };
  for (const std::string& name : inputs.arrays) {
    columns_.push_back(number("--select", name));
    if (std::count(columns_.begin(), columns_.end(), columns_.back()) > 1) {
      invalid("[{}] --select names '{}' twice; drop one", verb, name);
    }
  }
  for (std::size_t i = 0; inputs.arrays.empty() && i < all.size(); ++i) columns_.push_back(i);
  const auto renames = inputs.renames(verb);
  for (const auto& [from, to] : renames) number("--rename", from);
  for (const std::size_t column : columns_) {
    SourceArray array = all[column];
    if (const auto to = renames.find(array.name); to != renames.end()) array.name = to->second;
    if (std::ranges::count(arrays_, array.name, &SourceArray::name) > 0) {
      invalid("[{}] two arrays would be called '{}'; rename them apart", verb, array.name);
    }
    arrays_.push_back(std::move(array));
  }
  inputs.fill.apply(verb, arrays_, [&](std::size_t array, FillValue value) {
    std::vector<FillValue>& fill = arrays_[array].fill;
    if (std::ranges::find(fill, value) == fill.end()) fill.push_back(value);
  });
}

std::size_t Samples::find(const char* verb, std::string_view name) const {
  std::vector<std::string_view> names;
  for (const SourceArray& array : arrays_) {
    if (array.name == name) return names.size();
    names.push_back(array.name);
  }
  invalid("[{}] '{}': {}", verb, name_, unknown_text("array", name, names));
}

void Samples::read(std::size_t array, std::int64_t first, std::int64_t count, std::byte* out,
                   int threads) const {
  if (source_) return read_samples(*source_, array, first, count, out, threads);
  read_files(files_, columns_[array], first, count, out, threads);
}

void Samples::read(std::size_t array, const SampleSlice& slice, std::byte* out, int threads) const {
  if (slice.step == 1) return read(array, slice.first, slice.samples, out, threads);
  // Samples that are close are read with those between them, so that each chunk is unpacked once.
  constexpr std::int64_t kClose = 16;
  const std::int64_t together = slice.step > kClose ? 1 : batch(array, threads) / slice.step + 1;
  const std::size_t each = arrays_[array].sample_bytes();
  const std::int64_t most = (together - 1) * slice.step + 1;
  const HugeBuffer room(together == 1 ? 0 : static_cast<std::size_t>(most) * each);
  for (std::int64_t i = 0; i < slice.samples; i += together) {
    const SampleSlice part{slice.at(i), std::min(together, slice.samples - i), slice.step};
    std::byte* to = together == 1 ? out : room.data();
    read(array, part.first, part.span(), to, threads);
    if (together > 1) {
      compact(part, each, to);
      std::memcpy(out, to, static_cast<std::size_t>(part.samples) * each);
    }
    out += static_cast<std::size_t>(part.samples) * each;
  }
}

NamedSamples open_named(const char* verb, const InputOptions& inputs,
                        std::span<const std::string> names) {
  try {
    return {Samples(verb, inputs), {}};
  } catch (const Error& error) {
    if (!inputs.arrays.empty() || error.code() == Errc::Io) throw;
    InputOptions some = inputs;
    std::vector<std::string> left_out;
    try {
      const auto renames = inputs.renames(verb);
      const std::string path = input_path(verb, inputs.files.front());
      for (const InputArray& array : list_input(path, inputs.source_options(verb)).arrays) {
        const auto to = renames.find(array.name);
        const std::string& name = to == renames.end() ? array.name : to->second;
        const bool named = std::ranges::find(names, name) != names.end();
        (named ? some.arrays : left_out).push_back(named ? array.name : name);
      }
    } catch (const Error&) {  // the first error says more than this one
    }
    if (some.arrays.empty()) throw;
    std::erase_if(some.rename, [&](const std::string& pair) {
      return std::ranges::find(some.arrays, pair.substr(0, pair.find('='))) == some.arrays.end();
    });
    return {Samples(verb, some), std::move(left_out)};
  }
}

Parts Samples::parts(std::size_t array) const {
  struct OfFile {
    std::int64_t first_part, first_sample;
    Parts parts;
  };
  std::vector<OfFile> files;
  Parts all;
  std::int64_t samples = 0;
  for (const FileReader& file : files_) {
    files.push_back(
        {all.count, samples, cut_at_chunks(file, columns_[array], {0, file.samples()})});
    all.count += files.back().parts.count;
    all.most = std::max(all.most, files.back().parts.most);
    samples += file.samples();
  }
  all.at = [files = std::move(files)](std::int64_t i) {
    const auto after = std::ranges::upper_bound(files, i, {}, &OfFile::first_part);
    const OfFile& file = *(after - 1);
    SampleSlice part = file.parts.at(i - file.first_part);
    part.first += file.first_sample;
    return part;
  };
  return all;
}

std::int64_t Samples::batch(std::size_t array, int threads) const {
  std::int64_t chunk = 1;
  for (const FileReader& file : files_) {
    for (const ChunkInfo& info : file.chunks(columns_[array])) {
      chunk = std::max(chunk, info.samples);
    }
  }
  const std::int64_t most = batch_samples(arrays_[array].sample_bytes(), threads);
  return std::clamp<std::int64_t>((most + chunk - 1) / chunk * chunk, 1,
                                  std::max<std::int64_t>(samples_, 1));
}

double Samples::scale_factor(std::size_t array) const {
  if (source_) return scale_factor_of(*source_, arrays_[array].name);
  const FileReader& first = files_.front();
  return scale_factor_of(first.metadata(), first.arrays()[columns_[array]].name);
}

std::uint64_t Samples::packed_bytes(std::size_t array) const {
  std::uint64_t bytes = 0;
  for (const FileReader& file : files_) {
    bytes += packed_bytes_of(file, columns_[array]);
  }
  return bytes;
}

}  // namespace tuckfold::cli
