// idx files, as MNIST and its kin come in, plain or gzipped: images and labels of one prefix are
// the arrays of one dataset.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "inputs/inflate.h"
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

bool is_gzip(const SourceInput& input) { return input.text().starts_with("\x1f\x8b"); }

std::optional<DType> dtype_by(std::byte code) {
  switch (static_cast<int>(code)) {
    case 0x08: return DType::U8;
    case 0x09: return DType::I8;
    case 0x0b: return DType::I16;
    case 0x0c: return DType::I32;
    case 0x0d: return DType::F32;
    case 0x0e: return DType::F64;
    default: return std::nullopt;
  }
}

// The file's first bytes, as many as there are.
std::size_t front_of(const SourceInput& input, std::span<std::byte> out) {
  if (is_gzip(input)) return inflate_front(input.bytes(), Deflated::Gzip, out);
  const std::size_t size = std::min(out.size(), input.bytes().size());
  std::copy_n(input.bytes().begin(), size, out.begin());
  return size;
}

// Two zeros and a type are little to go by, so a sane number of axes must follow.
bool looks_like(const SourceInput& input) {
  std::array<std::byte, 8> front{};
  return front_of(input, front) == front.size() && front[0] == std::byte{0} &&
         front[1] == std::byte{0} && dtype_by(front[2]) && front[3] > std::byte{0} &&
         front[3] <= std::byte{8};
}

struct Header {
  DType dtype = DType::U8;
  Shape shape;
  std::size_t offset = 0;      // of the values
  std::size_t file_bytes = 0;  // once inflated
};

// A magic of two zeros, type and rank, then the axes, big-endian.
Header parse_header(const SourceInput& input) {
  std::array<std::byte, 4 + 4 * Shape::kMaxRank> front{};
  const std::size_t have = front_of(input, front);
  const auto corrupt = [&](std::string_view rule) {
    fail(Errc::CorruptData, "[idx] '{}': {}; copy it again", input.path, rule);
  };
  if (have < 4) corrupt("the file ends within its header");
  if (front[0] != std::byte{0} || front[1] != std::byte{0}) {
    corrupt("it does not begin as an idx file does");
  }
  const std::optional<DType> dtype = dtype_by(front[2]);
  if (!dtype) corrupt(fmt::format("there is no type {:#04x}", static_cast<int>(front[2])));
  const auto rank = static_cast<std::size_t>(front[3]);
  if (rank == 0 || rank > Shape::kMaxRank) corrupt(fmt::format("{} axes cannot be", rank));
  Header header{.dtype = *dtype, .offset = 4 + 4 * rank};
  if (have < header.offset) corrupt("the file ends within its header");
  for (std::size_t axis = 0; axis < rank; ++axis) {
    std::int64_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length = length << 8 | static_cast<std::int64_t>(front[4 + 4 * axis + i]);
    }
    header.shape.push_back(length);
  }
  std::int64_t elems = 0;
  try {
    elems = header.shape.elems();
  } catch (const Error&) {
    corrupt(fmt::format("no array has the shape {}", to_string(header.shape)));
  }
  const std::size_t most =
      is_gzip(input) ? most_inflated(input.bytes().size()) : input.bytes().size();
  if (most < header.offset ||
      static_cast<std::size_t>(elems) > (most - header.offset) / size_bytes(*dtype)) {
    corrupt(fmt::format("it is truncated: {} values of {} do not fit in {} bytes",
                        to_string(header.shape), to_string(*dtype), input.bytes().size()));
  }
  header.file_bytes = header.offset + static_cast<std::size_t>(elems) * size_bytes(*dtype);
  return header;
}

std::unique_ptr<Source> open_one(const SourceInput& input, std::string name) {
  const Header header = parse_header(input);
  std::shared_ptr<const Bytes> file = input.file;
  if (is_gzip(input)) {
    file = inflate_all(input.bytes(), Deflated::Gzip, header.file_bytes, "idx", input.path);
  } else if (file->span().size() != header.file_bytes) {
    fail(Errc::CorruptData, "[idx] '{}' must have {} bytes for {} values of {}, got {}", input.path,
         header.file_bytes, to_string(header.shape), to_string(header.dtype), file->span().size());
  }
  const Shape sample = sample_of(header.shape, "idx", input.path, name);
  const std::int64_t elems = header.shape[0] == 0 ? 0 : header.shape.elems() / header.shape[0];
  SlabBuilder builder("idx", input.path);
  builder.keep(file);
  builder.add(std::move(name),
              Slab{.data = file->span().data() + header.offset,
                   .samples = header.shape[0],
                   .step = elems * static_cast<std::int64_t>(size_bytes(header.dtype)),
                   .dtype = header.dtype,
                   .big_endian = true},
              sample);
  return builder.finish();
}

// train-images-idx3-ubyte.gz and train-labels.idx1-ubyte are image and label of train.
struct Role {
  std::string prefix;
  std::string array;
};
Role role_of(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string name = whole.filename().string();
  for (const auto& [word, array] : {std::pair{"image", "image"}, std::pair{"label", "label"}}) {
    const std::size_t at = name.find(word);
    if (at != name.npos) return {(whole.parent_path() / name.substr(0, at)).string(), array};
  }
  return {"", "data"};
}

std::unique_ptr<Source> open(std::span<const SourceInput> inputs, const SourceOptions&) {
  struct Group {
    std::string prefix;
    std::vector<NamedSource> arrays;
  };
  std::vector<Group> groups;
  for (const SourceInput& input : inputs) {
    const auto [prefix, array] = role_of(input.path);
    NamedSource source{input.path, open_one(input, array)};
    const auto group =
        array == "data" ? groups.end() : std::ranges::find(groups, prefix, &Group::prefix);
    if (group == groups.end()) {
      groups.push_back({.prefix = prefix, .arrays = {}});
      groups.back().arrays.push_back(std::move(source));
    } else {
      group->arrays.push_back(std::move(source));
    }
  }
  std::vector<NamedSource> parts;
  for (Group& group : groups) {
    // Images come first in whatever order the files do.
    std::ranges::sort(group.arrays, {}, [](const NamedSource& named) {
      return std::pair(named.source->arrays()[0].name, named.path);
    });
    std::string path = group.arrays.front().path;
    parts.push_back({std::move(path), join_arrays(std::move(group.arrays))});
  }
  return join_samples(std::move(parts));
}

}  // namespace

const SourceFormat kIdxSource = {
    .name = "idx",
    .summary = "MNIST's files, also gzipped; NAME-images and NAME-labels become image and label",
    .extensions = ".idx",
    .looks_like = looks_like,
    .open = open};

}  // namespace tuckfold
