// tar archives of WebDataset: members with the same stem are one sample, and the rest of the name
// after its first dot is the array: 0001.image.npy 0001.cls 0002.image.npy 0002.cls …
#include "inputs/tar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>

#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/image.h"
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

bool looks_like(const SourceInput& input) { return is_tar(input.bytes()); }

// The array a member belongs to, and how its bytes become a sample.
enum class Way : unsigned char { Npy, Number, Image };

struct Column {
  std::string name;
  Way way;
  Shape sample;
  DType dtype = DType::I64;
  std::vector<Slab> slabs;
  std::vector<std::int64_t> numbers;
};

struct MemberName {
  std::string stem, extension;  // without an extension: hidden, or no sample's
};
MemberName parts_of(const std::string& name) {
  const std::size_t folder = name.rfind('/') + 1;  // 0 if there is none
  const std::size_t dot = name.find('.', folder);
  if (dot == folder || dot == name.npos) return {.stem = name, .extension = ""};
  std::string extension = name.substr(dot + 1);
  for (char& letter : extension) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return {.stem = name.substr(0, dot), .extension = std::move(extension)};
}

std::string array_of(const std::string& extension) {
  return extension.ends_with(".npy") ? extension.substr(0, extension.size() - 4) : extension;
}

// How a member becomes a sample, or nothing.
std::optional<Way> way_of(std::string_view extension) {
  if (extension == "npy" || extension.ends_with(".npy")) return Way::Npy;
  const std::string_view last = extension.substr(extension.rfind('.') + 1);
  for (const std::string_view number : {"cls", "cls2", "txt", "index", "id", "count"}) {
    if (last == number) return Way::Number;
  }
  if (is_image_name(fmt::format(".{}", last), OtherImages::Refuse)) return Way::Image;
  return std::nullopt;
}

// The array that a member begins, without samples so far.
InputArray look_at(const TarMember& member, const std::string& extension) {
  InputArray array{.name = array_of(extension), .dtype = "?", .shape = {0}};
  try {
    const std::optional<Way> way = way_of(extension);
    Shape sample;
    if (!way) {
      array.refused = "no .npy, number or image";
    } else if (*way == Way::Npy) {
      const NpyHeader header = parse_npy_header(member.bytes, member.name);
      array.dtype = to_string(header.dtype);
      sample = header.shape;
    } else if (*way == Way::Image) {
      const ImageInfo info = look_at_image(member.bytes, member.name);
      array.dtype = to_string(info.dtype);
      sample = info.shape();
    } else {
      array.dtype = "i64";
    }
    for (const std::int64_t axis : sample) array.shape.push_back(axis);
  } catch (const Error&) {
    array.refused = "a type that is not read";
  }
  return array;
}

class Archive {
 public:
  Archive(const SourceInput& input, const SourceOptions& options)
      : input_(input), options_(options) {}

  std::unique_ptr<Source> open() {
    for (const TarMember& member : list_tar(input_.bytes(), input_.path)) add(member);
    close_sample();
    SlabBuilder builder("tar", input_.path);
    builder.keep(input_.file);
    for (auto& [extension, column] : columns_) {
      if (column.way == Way::Number) {
        const std::size_t bytes = column.numbers.size() * sizeof(std::int64_t);
        const std::shared_ptr<Bytes> kept = Bytes::scratch(bytes, "tar");
        if (bytes > 0) std::memcpy(kept->scratch_data(), column.numbers.data(), bytes);
        builder.keep(kept);
        builder.add(column.name, kept->span().data(), DType::I64,
                    {static_cast<std::int64_t>(column.numbers.size())});
      } else {
        builder.add(column.name, std::move(column.slabs), column.sample);
      }
    }
    std::unique_ptr<Source> source = builder.finish();
    source->set_about({.files = std::move(stems_)});
    return source;
  }

 private:
  void add(const TarMember& member) {
    const auto [stem, extension] = parts_of(member.name);
    if (extension.empty()) return;
    const std::string name = array_of(extension);
    if (!wanted(options_, name)) return;
    if (stem != stem_) close_sample();
    stem_ = stem;

    auto found = columns_.find(extension);
    if (found == columns_.end()) {
      if (samples_ > 0) {
        fail_over_arrays(Errc::InvalidArgument, input_.path,
                         "[tar] '{}': sample {} has a .{}, which the first has not", input_.path,
                         tuckfold::quoted(stem), extension);
      }
      found = columns_.emplace(extension, Column{.name = name, .way = way_for(extension, member)})
                  .first;
    }
    Column& column = found->second;
    if (count(column) != samples_) {
      fail(Errc::CorruptData, "[tar] '{}' has {} twice", input_.path,
           tuckfold::quoted(member.name));
    }
    switch (column.way) {
      case Way::Npy: return add_npy(column, member);
      case Way::Number: return add_number(column, member);
      case Way::Image: return add_image(column, member);
    }
  }

  static std::size_t count(const Column& column) {
    return column.way == Way::Number ? column.numbers.size() : column.slabs.size();
  }

  // Every array must have a member of every sample.
  void close_sample() {
    if (stem_.empty()) return;
    ++samples_;
    stems_.push_back(stem_);
    for (const auto& [extension, column] : columns_) {
      if (count(column) != samples_) {
        fail_over_arrays(Errc::InvalidArgument, input_.path,
                         "[tar] '{}': sample {} has no .{}, which others have", input_.path,
                         tuckfold::quoted(stem_), extension);
      }
    }
  }

  Way way_for(std::string_view extension, const TarMember& member) const {
    if (is_image_name(member.name)) return Way::Image;  // throws with its name if it is not read
    if (const std::optional<Way> way = way_of(extension)) return *way;
    fail_over_arrays(
        Errc::Unsupported, input_.path,
        "[tar] '{}': member {} is neither .npy, a number in .cls or .txt, nor an image",
        input_.path, tuckfold::quoted(member.name));
  }

  void check(Column& column, const TarMember& member, DType dtype, const Shape& sample) const {
    if (column.slabs.empty()) {
      column.dtype = dtype;
      column.sample = sample;
    }
    if (dtype != column.dtype || sample != column.sample) {
      invalid("[tar] '{}': samples must have one shape, but {} is {} {} and the first is {} {}",
              input_.path, tuckfold::quoted(member.name), to_string(sample), to_string(dtype),
              to_string(column.sample), to_string(column.dtype));
    }
  }

  void add_npy(Column& column, const TarMember& member) const {
    const NpyHeader header =
        parse_npy_header(member.bytes, fmt::format("{}:{}", input_.path, member.name));
    check(column, member, header.dtype, header.shape);
    Slab slab{
        .data = member.bytes.data() + header.data_offset, .samples = 1, .dtype = header.dtype};
    if (header.fortran_order) {
      auto strides = std::make_shared<Shape>(header.shape);
      std::int64_t stride = 1;
      for (std::size_t axis = 0; axis < header.shape.rank(); ++axis) {
        (*strides)[axis] = stride;
        stride *= std::max<std::int64_t>(header.shape[axis], 1);
      }
      slab.strides = std::move(strides);
    }
    column.slabs.push_back(std::move(slab));
  }

  void add_number(Column& column, const TarMember& member) const {
    std::string_view text(reinterpret_cast<const char*>(member.bytes.data()), member.bytes.size());
    constexpr std::string_view kSpace = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    text = text.substr(0, text.find_last_not_of(kSpace) + 1);
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end) {
      fail_over_arrays(Errc::Unsupported, input_.path,
                       "[tar] '{}': {} must be a whole number, got {}", input_.path,
                       tuckfold::quoted(member.name), tuckfold::quoted(text));
    }
    column.numbers.push_back(value);
  }

  void add_image(Column& column, const TarMember& member) const {
    const ImageInfo info =
        look_at_image(member.bytes, fmt::format("{}:{}", input_.path, member.name));
    check(column, member, info.dtype, info.shape());
    column.slabs.push_back({.data = member.bytes.data(),
                            .samples = 1,
                            .dtype = info.dtype,
                            .image_bytes = member.bytes.size()});
  }

  const SourceInput& input_;
  const SourceOptions& options_;
  std::map<std::string, Column> columns_;  // by extension
  std::string stem_;                       // of the sample that members are added to
  std::size_t samples_ = 0;                // complete ones
  std::vector<std::string> stems_;         // of those
};

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions& options) {
  return Archive(input, options).open();
}

// One array for each extension, with the type and shape of its first member.
std::vector<InputArray> list(const SourceInput& input, const SourceOptions&) {
  std::vector<InputArray> arrays;
  std::map<std::string, std::size_t> numbers;  // of arrays, by extension
  for (const TarMember& member : list_tar(input.bytes(), input.path)) {
    const std::string extension = parts_of(member.name).extension;
    if (extension.empty()) continue;
    const auto [found, is_new] = numbers.emplace(extension, arrays.size());
    if (is_new) arrays.push_back(look_at(member, extension));
    InputArray& array = arrays[found->second];
    array.shape[0] += 1;
    array.bytes += member.bytes.size();
  }
  return arrays;
}

}  // namespace

const SourceFormat kTarSource = {
    .name = "tar",
    .summary = "WebDataset's archives: members of one stem are a sample, extensions are arrays",
    .extensions = ".tar",
    .looks_like = looks_like,
    .open = open_each<open_one>,
    .list = list};

}  // namespace tuckfold
