// The table of formats, and the detection of a file's format.
#include "inputs/source.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/formats.h"
#include "inputs/join.h"

namespace tuckfold {
namespace {

// The first row that recognizes the contents gets the file; rows that could be mistaken come last.
const std::array kFormats = {&kNpySource,   &kNpzSource, &kIdxSource,         &kImagesSource,
                             &kHdf5Source,  &kTarSource, &kSafetensorsSource, &kCifarPickleSource,
                             &kCifarSource, &kRawSource};

std::string names_of_formats() {
  std::string names;
  for (const SourceFormat* format : kFormats) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format->name);
  }
  return names;
}

SourceInput open_input(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return {.path = path.string(), .file = nullptr};
  return {.path = path.string(), .file = Bytes::map(path.string(), "source")};
}

const SourceFormat& format_of(const SourceInput& input) {
  if (input.file && input.bytes().empty()) {
    fail(Errc::CorruptData, "[source] '{}' is empty; write it again", input.path);
  }
  for (const SourceFormat* format : kFormats) {
    if (format->looks_like(input)) return *format;
  }
  const std::string extension = std::filesystem::path(input.path).extension().string();
  for (const SourceFormat* format : kFormats) {
    for (std::string_view rest = format->extensions; !rest.empty() && !extension.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      if (rest.substr(0, end) == extension) return *format;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (input.text().starts_with("TuckFile")) {
    invalid("[source] '{}' is a .tuck file already; unpack it first to pack it anew", input.path);
  }
  invalid("[source] '{}' looks like none of {}; name its format, or dtype and shape if it is raw",
          input.path, names_of_formats());
}

const SourceFormat& format_for(std::span<const SourceInput> inputs, const SourceOptions& options) {
  if (!options.format.empty()) {
    for (const SourceFormat* format : kFormats) {
      if (format->name == options.format) return *format;
    }
    std::vector<std::string_view> names;
    for (const SourceFormat* format : kFormats) names.push_back(format->name);
    const std::string_view near = nearest_word(options.format, names);
    invalid("[source] format must be one of {}, got '{}'{}", names_of_formats(), options.format,
            near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  if (options.dtype || options.sample) return kRawSource;  // other formats say it themselves
  const SourceFormat& first = format_of(inputs.front());
  for (const SourceInput& input : inputs.subspan(1)) {
    const SourceFormat& other = format_of(input);
    if (&other != &first) {
      invalid("[source] files of one dataset are in one format, but '{}' is {} and '{}' is {}",
              inputs.front().path, first.name, input.path, other.name);
    }
  }
  return first;
}

std::unique_ptr<Source> open_beside(std::span<const SourceInput> inputs, SourceOptions options) {
  options.arrays.clear();  // names of files, which no file knows
  std::vector<NamedSource> parts;
  for (const SourceInput& input : inputs) {
    const std::span<const SourceInput> alone(&input, 1);
    std::unique_ptr<Source> source = format_for(alone, options).open(alone, options);
    if (source->arrays().size() == 1) source->rename(0, stem_of(input.path));
    parts.push_back({input.path, std::move(source)});
  }
  return join_arrays(std::move(parts));
}

void rename(Source& source, const SourceOptions& options) {
  for (const auto& [from, to] : options.rename) {
    if (std::ranges::count(source.arrays(), from, &SourceArray::name) == 0) {
      invalid("[source] there is no array '{}' to rename to '{}'", from, to);
    }
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < source.arrays().size(); ++i) {
    const auto found = options.rename.find(source.arrays()[i].name);
    if (found != options.rename.end()) source.rename(i, found->second);
    const std::string& name = source.arrays()[i].name;
    if (name.empty()) invalid("[source] an array cannot be renamed to nothing");
    if (!names.insert(name).second) {
      invalid("[source] two arrays would be called '{}'; rename them apart", name);
    }
  }
}

}  // namespace

bool Source::has_bytes(std::size_t array, std::int64_t first, std::int64_t count) const {
  if (array >= arrays_.size()) {
    invalid("[source] arrays are 0..{}, got {}", arrays_.size() - 1, array);
  }
  if (first < 0 || count < 0 || first > samples_ || count > samples_ - first) {
    invalid("[source] samples are 0..{}, got {} from {} on", samples_ - 1, count, first);
  }
  return count > 0 && arrays_[array].sample_bytes() > 0;
}

void Source::read(std::size_t array, std::int64_t first, std::int64_t count, std::byte* out) const {
  if (has_bytes(array, first, count)) read_samples(array, first, count, out);
}

const std::byte* Source::fetch(std::size_t array, std::int64_t first, std::int64_t count,
                               std::byte* room) const {
  if (!has_bytes(array, first, count)) return room;
  if (const std::byte* found = find_samples(array, first, count)) return found;
  read_samples(array, first, count, room);
  return room;
}

bool wanted(const SourceOptions& options, std::string_view name) {
  return options.arrays.empty() || std::ranges::count(options.arrays, name) > 0;
}

std::string stem_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.substr(0, name.find('.', 1));
}

std::unique_ptr<Source> open_source(std::span<const std::filesystem::path> inputs,
                                    const SourceOptions& options) {
  if (inputs.empty()) invalid("[source] there must be at least one input");
  std::vector<SourceInput> files;
  for (const std::filesystem::path& path : inputs) files.push_back(open_input(path));
  std::unique_ptr<Source> source = options.side_by_side
                                       ? open_beside(files, options)
                                       : format_for(files, options).open(files, options);
  if (!options.arrays.empty()) source = pick_arrays(std::move(source), options.arrays);
  rename(*source, options);
  return source;
}

std::vector<SourceFormatInfo> list_source_formats() {
  std::vector<SourceFormatInfo> list;
  for (const SourceFormat* format : kFormats) list.push_back({format->name, format->summary});
  return list;
}

}  // namespace tuckfold
