// safetensors files: a length, a JSON object of types, shapes and places, then the tensors.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/json.h"
#include "base/text_scan.h"
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

struct TypeRow {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTypes = {
    TypeRow{"F32", DType::F32}, TypeRow{"F16", DType::F16}, TypeRow{"BF16", DType::BF16},
    TypeRow{"F64", DType::F64}, TypeRow{"U8", DType::U8},   TypeRow{"BOOL", DType::Bool},
    TypeRow{"I8", DType::I8},   TypeRow{"I16", DType::I16}, TypeRow{"I32", DType::I32},
    TypeRow{"I64", DType::I64}, TypeRow{"U16", DType::U16}, TypeRow{"U32", DType::U32},
    TypeRow{"U64", DType::U64},
};

// The header's length, or nothing where the file cannot hold it.
std::optional<std::uint64_t> header_length(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return std::nullopt;
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > bytes.size() - 8) return std::nullopt;
  return length;
}

bool looks_like(const SourceInput& input) {
  const std::optional<std::uint64_t> length = header_length(input.bytes());
  return length && *length >= 2 && input.text()[8] == '{';
}

struct Tensor {
  std::string dtype;
  Shape shape;
  std::size_t begin = 0, end = 0;
};

[[noreturn]] void corrupt(std::string_view path, std::string_view rule) {
  fail(Errc::CorruptData, "[safetensors] '{}': {}; copy or save it again", path, rule);
}

Json parse_header(std::string_view text, std::string_view path) {
  try {
    return Json::parse(text);
  } catch (const Error& error) {
    corrupt(path, fmt::format("the header is broken ({})", error.what()));
  }
}

// A length or a place in the header.
std::int64_t count_of(const Json& number, std::string_view name, std::string_view path) {
  const std::int64_t count = number.whole();
  if (count < 0) {
    corrupt(path, fmt::format("tensor {} has {} in place of a number of 0 or more",
                              tuckfold::quoted(name), tuckfold::quoted(number.text)));
  }
  return count;
}

Tensor parse_tensor(const Json& json, std::string_view name, std::string_view path) {
  const Json* dtype = json.find("dtype");
  const Json* shape = json.find("shape");
  const Json* place = json.find("data_offsets");
  const auto is = [](const Json* value, Json::Kind kind) {
    return value != nullptr && value->kind == kind;
  };
  if (!is(dtype, Json::Kind::String) || !is(shape, Json::Kind::Array) ||
      !is(place, Json::Kind::Array) || place->items.size() != 2 || json.items.size() != 3) {
    corrupt(path, fmt::format("tensor {} must have dtype, shape and two data_offsets, and no more",
                              tuckfold::quoted(name)));
  }
  if (shape->items.size() > Shape::kMaxRank) {
    corrupt(path, fmt::format("tensor {} has {} axes, of {} at most", tuckfold::quoted(name),
                              shape->items.size(), Shape::kMaxRank));
  }
  Tensor tensor{.dtype = dtype->string};
  for (const Json& axis : shape->items) tensor.shape.push_back(count_of(axis, name, path));
  tensor.begin = static_cast<std::size_t>(count_of(place->items[0], name, path));
  tensor.end = static_cast<std::size_t>(count_of(place->items[1], name, path));
  return tensor;
}

DType dtype_of(const Tensor& tensor, std::string_view name, std::string_view path) {
  for (const TypeRow& type : kTypes) {
    if (type.name == tensor.dtype) return type.dtype;
  }
  fail_over_arrays(Errc::Unsupported, path,
                   "[safetensors] '{}': tensor {} is of {}, which is not read", path,
                   tuckfold::quoted(name), tuckfold::quoted(tensor.dtype));
}

void add(SlabBuilder& builder, const std::string& name, const Tensor& tensor,
         std::span<const std::byte> data, std::string_view path) {
  const DType dtype = dtype_of(tensor, name, path);
  if (tensor.begin > tensor.end || tensor.end > data.size()) {
    corrupt(path, fmt::format("tensor {} is at {}..{} of {} bytes", tuckfold::quoted(name),
                              tensor.begin, tensor.end, data.size()));
  }
  const std::size_t bytes = tensor.end - tensor.begin;
  std::int64_t elems = 0;
  try {
    elems = tensor.shape.elems();
  } catch (const Error&) {
    elems = -1;  // past 2^62, so past any file
  }
  if (elems < 0 || bytes % size_bytes(dtype) != 0 ||
      bytes / size_bytes(dtype) != static_cast<std::size_t>(elems)) {
    corrupt(path, fmt::format("tensor {}, {} {}, cannot have {} bytes", tuckfold::quoted(name),
                              to_string(tensor.shape), tensor.dtype, bytes));
  }
  builder.add(name, data.data() + tensor.begin, dtype, tensor.shape);
}

// Tensors follow each other from the first byte to the last, each byte in one of them: that is the
// format, and what says that none was lost.
void check_places(std::vector<Tensor> tensors, std::size_t bytes, std::string_view path) {
  std::ranges::sort(tensors, {}, [](const Tensor& one) { return std::pair(one.begin, one.end); });
  std::size_t at = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.begin != at) {
      corrupt(path, fmt::format("the tensor at {}..{} {} the one before it, which ends at {}",
                                tensor.begin, tensor.end,
                                tensor.begin < at ? "overlaps" : "does not follow", at));
    }
    at = tensor.end;
  }
  if (at != bytes) {
    corrupt(path, fmt::format("its tensors have {} bytes, and {} are there", at, bytes));
  }
}

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions& options) {
  const std::span<const std::byte> bytes = input.bytes();
  const std::optional<std::uint64_t> length = header_length(bytes);
  if (!length) {
    fail(Errc::CorruptData, "[safetensors] '{}' ends within its header; copy or save it again",
         input.path);
  }
  const std::span<const std::byte> data = bytes.subspan(8 + *length);
  SlabBuilder builder("safetensors", input.path);
  builder.keep(input.file);
  const Json header = parse_header(input.text().substr(8, *length), input.path);
  if (header.kind != Json::Kind::Object) corrupt(input.path, "the header is no JSON object");
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < header.items.size(); ++i) {
    const std::string& name = header.keys[i];
    if (name == "__metadata__") continue;
    const Tensor tensor = parse_tensor(header.items[i], name, input.path);
    if (wanted(options, name)) add(builder, name, tensor, data, input.path);
    tensors.push_back(tensor);
  }
  std::unique_ptr<Source> source = builder.finish();
  check_places(std::move(tensors), data.size(), input.path);
  return source;
}

std::vector<InputArray> list(const SourceInput& input, const SourceOptions&) {
  std::vector<InputArray> arrays;
  const std::optional<std::uint64_t> length = header_length(input.bytes());
  if (!length) return arrays;
  const Json header = parse_header(input.text().substr(8, *length), input.path);
  for (std::size_t i = 0; i < header.keys.size(); ++i) {
    const std::string& name = header.keys[i];
    if (name == "__metadata__") continue;
    const Tensor tensor = parse_tensor(header.items[i], name, input.path);
    const auto type = std::ranges::find(kTypes, tensor.dtype, &TypeRow::name);
    const bool known = type != kTypes.end();
    arrays.push_back({.name = name,
                      .dtype = known ? std::string(to_string(type->dtype)) : tensor.dtype,
                      .shape = tensor.shape,
                      .bytes = tensor.end - std::min(tensor.begin, tensor.end),
                      .refused = known ? "" : "a type that is not read"});
  }
  return arrays;
}

}  // namespace

const SourceFormat kSafetensorsSource = {
    .name = "safetensors",
    .summary = "named tensors; the leading axis counts samples",
    .extensions = ".safetensors",
    .looks_like = looks_like,
    .open = open_each<open_one>,
    .list = list};

}  // namespace tuckfold
