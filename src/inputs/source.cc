// The table of formats, and the detection of a file's format.
#include "inputs/source.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/folder.h"
#include "inputs/formats.h"
#include "inputs/inflate.h"
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

const SourceFormat* format_by_contents(const SourceInput& input) {
  for (const SourceFormat* format : kFormats) {
    if (format->looks_like(input)) return format;
  }
  return nullptr;
}

const SourceFormat& format_of(const SourceInput& input) {
  if (input.file && input.bytes().empty()) {
    fail(Errc::CorruptData, "[source] '{}' is empty; write it again", input.path);
  }
  if (const SourceFormat* format = find_format(input)) return *format;
  if (input.text().starts_with("TuckFile")) {
    invalid("[source] '{}' is a .tuck file already; unpack it first to pack it anew", input.path);
  }
  invalid("[source] '{}' looks like none of {}; name its format, or dtype and shape if it is raw",
          input.path, names_of_formats());
}

const SourceFormat& format_for(std::span<const SourceInput> inputs, const SourceOptions& options) {
  if (!options.format.empty()) {
    for (const SourceFormat* format : kFormats) {
      if (format->name != options.format) continue;
      for (const SourceInput& input : inputs) {
        if (format != &kRawSource && !format->looks_like(input)) refuse_other_formats(input);
      }
      return *format;
    }
    std::vector<std::string_view> names;
    for (const SourceFormat* format : kFormats) names.push_back(format->name);
    const std::string_view near = nearest_word(options.format, names);
    invalid("[source] format must be one of {}, got '{}'{}", names_of_formats(), options.format,
            near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  if (is_raw(options)) return kRawSource;  // other formats say it themselves
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
  // Names of files, which no file knows.
  const std::vector<std::string> names = std::exchange(options.arrays, {});
  std::vector<NamedSource> parts;
  for (const SourceInput& input : inputs) {
    const std::span<const SourceInput> alone(&input, 1);
    const SourceFormat& format = format_for(alone, options);
    // Files of one array that are not asked for need not match, or be readable.
    if (&format == &kNpySource && !names.empty() &&
        std::ranges::count(names, stem_of(input.path)) == 0) {
      continue;
    }
    std::unique_ptr<Source> source = format.open(alone, options);
    if (source->arrays().size() == 1) source->rename(0, stem_of(input.path));
    parts.push_back({input.path, std::move(source)});
  }
  if (parts.empty()) {
    std::vector<std::string> stems;
    for (const SourceInput& input : inputs) stems.push_back(stem_of(input.path));
    invalid("[source] there is no array '{}'; there are {}", names.front(), fmt::join(stems, ", "));
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

// What a source that could be opened has.
std::vector<InputArray> list_opened(const Source& source) {
  std::vector<InputArray> arrays;
  for (const SourceArray& array : source.arrays()) {
    Shape shape{source.samples()};
    for (const std::int64_t axis : array.sample) shape.push_back(axis);
    arrays.push_back({.name = array.name,
                      .dtype = std::string(to_string(array.dtype)),
                      .shape = shape,
                      .bytes = static_cast<std::uint64_t>(source.samples()) * array.sample_bytes(),
                      .refused = {}});
  }
  return arrays;
}

std::vector<InputArray> list_file(const SourceInput& input, const SourceFormat& format,
                                  const SourceOptions& options) {
  if (format.list != nullptr) return format.list(input, options);
  return list_opened(*format.open({&input, 1}, options));
}

// "; name those to take with --select: 'image' (u8 60x8x8), 'label' (i64 60)", the largest first, or
// empty if there is no choice.
std::string which_arrays(std::span<const SourceInput> inputs, const std::string& path,
                         const SourceOptions& options) {
  const auto input = std::ranges::find(inputs, path, &SourceInput::path);
  std::vector<InputArray> arrays;
  try {
    if (input == inputs.end()) return "";
    const SourceFormat& format = format_for({&*input, 1}, options);
    if (format.list == nullptr) return "";  // its arrays are always the same
    arrays = format.list(*input, options);
  } catch (const Error&) {  // the first error says more than this one
    return "; name the arrays to take with --select";
  }
  if (arrays.empty() || (arrays.size() == 1 && options.arrays.empty())) return "";
  std::ranges::stable_sort(arrays, std::greater<>(), &InputArray::bytes);
  constexpr std::size_t kMost = 12;
  std::string text;
  for (const InputArray& array : std::span(arrays).first(std::min(kMost, arrays.size()))) {
    text += fmt::format(
        "{}{} ({} {})", text.empty() ? "" : ", ", tuckfold::quoted(array.name), array.dtype,
        array.refused.empty() || array.shape.rank() > 0 ? to_string(array.shape) : "?");
  }
  if (arrays.size() > kMost) {
    text += fmt::format(" and {} more, which 'tuckfold inputs' lists", arrays.size() - kMost);
  }
  return "; name those to take with --select: " + text;
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

bool is_raw(const SourceOptions& options) {
  return options.format == kRawSource.name ||
         (options.format.empty() && (options.dtype || options.sample));
}

bool wanted(const SourceOptions& options, std::string_view name) {
  return options.arrays.empty() || std::ranges::count(options.arrays, name) > 0;
}

std::string stem_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.substr(0, name.find('.', 1));
}

void Source::rename(std::size_t array, std::string name) {
  if (auto said = about_.array_attributes.extract(arrays_[array].name)) {
    said.key() = name;
    about_.array_attributes.insert(std::move(said));
  }
  arrays_[array].name = std::move(name);
}

std::string SourceInput::extension() const {
  std::filesystem::path name(path);
  if (inflated && name.extension() == ".gz") name = name.stem();
  return name.extension().string();
}

SourceInput open_input(const std::filesystem::path& path, bool is_raw) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return {.path = path.string(), .file = nullptr};
  SourceInput input{.path = path.string(), .file = Bytes::map(path.string(), "source")};
  const bool is_gzip = input.text().starts_with("\x1f\x8b\x08");
  if (!is_gzip || kIdxSource.looks_like(input) || (is_raw && path.extension() != ".gz")) {
    return input;
  }
  input.file = inflate_gzip(input.bytes(), "source", input.path);
  input.inflated = true;
  return input;
}

const SourceFormat* find_format(const SourceInput& input) {
  if (const SourceFormat* format = format_by_contents(input)) return format;
  refuse_other_formats(input);
  const std::string extension = input.extension();
  for (const SourceFormat* format : kFormats) {
    for (std::string_view rest = format->extensions; !rest.empty() && !extension.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      if (rest.substr(0, end) == extension) return format;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return nullptr;
}

std::unique_ptr<Source> open_source(std::span<const std::filesystem::path> inputs,
                                    const SourceOptions& options) {
  if (inputs.empty()) invalid("[source] there must be at least one input");
  const Expanded files = open_inputs(inputs, options);
  SourceOptions how = options;
  how.side_by_side = options.side_by_side || files.side_by_side;
  std::unique_ptr<Source> source;
  try {
    source = how.side_by_side ? open_beside(files.inputs, how)
                              : format_for(files.inputs, how).open(files.inputs, how);
  } catch (const ArraysError& error) {
    throw Error(error.code(), error.what() + which_arrays(files.inputs, error.path(), how));
  }
  if (source->about().classes.empty() && !files.classes.empty()) {
    SourceAbout about = source->about();
    about.classes = files.classes;
    source->set_about(std::move(about));
  }
  if (!options.arrays.empty()) source = pick_arrays(std::move(source), options.arrays);
  rename(*source, options);
  return source;
}

InputListing list_input(const std::filesystem::path& input, const SourceOptions& options) {
  const Expanded files = open_inputs({&input, 1}, options);
  const SourceFormat& format = format_for(files.inputs, options);
  InputListing listing{.format = format.name, .arrays = {}};
  if (files.side_by_side) {
    for (const SourceInput& file : files.inputs) {
      std::vector<InputArray> arrays = list_file(file, format, options);
      if (arrays.size() == 1) arrays.front().name = stem_of(file.path);
      std::ranges::move(arrays, std::back_inserter(listing.arrays));
    }
  } else if (files.inputs.size() == 1) {
    listing.arrays = list_file(files.inputs.front(), format, options);
  } else {
    listing.arrays = list_opened(*format.open(files.inputs, options));
  }
  return listing;
}

std::vector<SourceFormatInfo> list_source_formats() {
  std::vector<SourceFormatInfo> list;
  for (const SourceFormat* format : kFormats) list.push_back({format->name, format->summary});
  return list;
}

}  // namespace tuckfold
