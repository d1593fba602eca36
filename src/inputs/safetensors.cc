// safetensors files: a length, a JSON object of types, shapes and places, then the tensors.
#include <array>
#include <optional>

#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/join.h"
#include "inputs/json_scan.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

struct TypeRow {
  std::string_view name;
  Stored stored;
};
constexpr std::array kTypes = {
    TypeRow{"F32", Stored::F32}, TypeRow{"F16", Stored::F16}, TypeRow{"BF16", Stored::BF16},
    TypeRow{"F64", Stored::F64}, TypeRow{"U8", Stored::U8},   TypeRow{"BOOL", Stored::Bool},
    TypeRow{"I8", Stored::I8},   TypeRow{"I16", Stored::I16}, TypeRow{"I32", Stored::I32},
    TypeRow{"I64", Stored::I64}, TypeRow{"U16", Stored::U16}, TypeRow{"U32", Stored::U32},
    TypeRow{"U64", Stored::U64},
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

Tensor parse_tensor(JsonScanner& json, std::string_view name) {
  Tensor tensor;
  bool has_dtype = false, has_shape = false, has_place = false, first = true, first_axis = true;
  json.expect('{');
  while (json.more('}', first)) {
    const std::string key = json.string();
    json.expect(':');
    if (key == "dtype" && !has_dtype) {
      has_dtype = true;
      tensor.dtype = json.string();
    } else if (key == "shape" && !has_shape) {
      has_shape = true;
      json.expect('[');
      while (json.more(']', first_axis)) {
        if (tensor.shape.rank() == Shape::kMaxRank) json.corrupt("a tensor has too many axes");
        tensor.shape.push_back(json.length());
      }
    } else if (key == "data_offsets" && !has_place) {
      has_place = true;
      json.expect('[');
      tensor.begin = static_cast<std::size_t>(json.length());
      json.expect(',');
      tensor.end = static_cast<std::size_t>(json.length());
      json.expect(']');
    } else {
      json.corrupt(fmt::format("tensor {} must not have {} here", tuckfold::quoted(name),
                               tuckfold::quoted(key)));
    }
  }
  if (!has_dtype || !has_shape || !has_place) {
    json.corrupt(
        fmt::format("tensor {} must have dtype, shape and data_offsets", tuckfold::quoted(name)));
  }
  return tensor;
}

Stored stored_of(const Tensor& tensor, std::string_view name, std::string_view path) {
  for (const TypeRow& type : kTypes) {
    if (type.name == tensor.dtype) return type.stored;
  }
  fail(Errc::Unsupported,
       "[safetensors] '{}': tensor {} is of {}, which is not read; name the arrays to take", path,
       tuckfold::quoted(name), tuckfold::quoted(tensor.dtype));
}

void add(SlabBuilder& builder, const std::string& name, const Tensor& tensor,
         std::span<const std::byte> data, const JsonScanner& json, std::string_view path) {
  const Stored stored = stored_of(tensor, name, path);
  if (tensor.begin > tensor.end || tensor.end > data.size()) {
    json.corrupt(fmt::format("tensor {} lies at {}..{} of {} bytes; copy or save it again",
                             tuckfold::quoted(name), tensor.begin, tensor.end, data.size()));
  }
  const std::size_t bytes = tensor.end - tensor.begin;
  std::int64_t elems = 0;
  try {
    elems = tensor.shape.elems();
  } catch (const Error&) {
    elems = -1;  // past 2^62, so past any file
  }
  if (elems < 0 || bytes % size_bytes(stored) != 0 ||
      bytes / size_bytes(stored) != static_cast<std::size_t>(elems)) {
    json.corrupt(fmt::format("tensor {}, {} {}, cannot have {} bytes", tuckfold::quoted(name),
                             to_string(tensor.shape), tensor.dtype, bytes));
  }
  builder.add(name, data.data() + tensor.begin, stored, tensor.shape);
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
  JsonScanner json(input.text().substr(8, *length), "safetensors", input.path);
  bool first = true;
  json.expect('{');
  while (json.more('}', first)) {
    const std::string name = json.string();
    json.expect(':');
    if (name == "__metadata__") {
      json.skip_value();
      continue;
    }
    const Tensor tensor = parse_tensor(json, name);
    if (wanted(options, name)) add(builder, name, tensor, data, json, input.path);
  }
  json.expect_end();
  return builder.finish();
}

}  // namespace

const SourceFormat kSafetensorsSource = {
    .name = "safetensors",
    .summary = "named tensors; the leading axis counts samples",
    .extensions = ".safetensors",
    .looks_like = looks_like,
    .open = open_each<open_one>};

}  // namespace tuckfold
