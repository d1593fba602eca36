// The header of a .npy file: a magic, a length, and a Python dictionary of three entries.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "base/fail.h"
#include "inputs/npy.h"

namespace tuckfold {
namespace {

struct TypeRow {
  std::string_view descr;  // without the byte order
  DType dtype;
};
constexpr std::array kTypes = {
    TypeRow{"f4", DType::F32}, TypeRow{"f2", DType::F16},  TypeRow{"f8", DType::F64},
    TypeRow{"u1", DType::U8},  TypeRow{"b1", DType::Bool}, TypeRow{"i1", DType::I8},
    TypeRow{"i2", DType::I16}, TypeRow{"i4", DType::I32},  TypeRow{"i8", DType::I64},
    TypeRow{"u2", DType::U16}, TypeRow{"u4", DType::U32},  TypeRow{"u8", DType::U64},
};

// Walks the dictionary, a Python literal. Every step stops at the end of the text.
class Scanner {
 public:
  Scanner(std::string_view text, std::string_view path) : rest_(text), path_(path) {}

  [[noreturn]] void corrupt(std::string_view rule) const {
    fail(Errc::CorruptData, "[npy] '{}': {}; save it again with numpy.save", path_, rule);
  }

  bool accept(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) corrupt(fmt::format("the header lacks a '{}'", wanted));
  }

  std::string_view string() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') corrupt("the header lacks a string");
    const std::size_t end = rest_.find(quote, 1);
    if (end == rest_.npos) corrupt("a string in the header does not end");
    const std::string_view found = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return found;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "True";
    }
    corrupt("fortran_order must be True or False");
  }

  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      if (shape.rank() == Shape::kMaxRank) {
        fail(Errc::Unsupported, "[npy] '{}': a tensor has at most {} axes; reshape it", path_,
             Shape::kMaxRank);
      }
      shape.push_back(length());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  void expect_end() {
    skip_space();
    if (!rest_.empty()) corrupt("the header goes on after its dictionary");
  }

  bool at_list() {
    skip_space();
    return rest_.starts_with('[');
  }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  std::int64_t length() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{} || value < 0) corrupt("an axis length in the header is no number");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    accept('L');  // Python 2 wrote long integers so
    return value;
  }

  std::string_view rest_, path_;
};

DType parse_descr(Scanner& scanner, std::string_view path) {
  constexpr std::string_view kKnown = "f2 f4 f8, u1 to u8, i1 to i8 and bool are read";
  if (scanner.at_list()) {
    fail(Errc::Unsupported, "[npy] '{}': records are not tensors; save each field as an array",
         path);
  }
  const std::string_view descr = scanner.string();
  if (descr.size() < 2) scanner.corrupt(fmt::format("'{}' is no dtype", descr));
  const std::string_view kind = descr.substr(1);
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const TypeRow& type) { return type.descr == kind; });
  if (found == kTypes.end() || std::string_view("<>|=").find(descr[0]) == std::string_view::npos) {
    const std::string_view advice = kind == "c8" ? "save its .real and .imag, or .view('f4')"
                                    : kind.starts_with('c')
                                        ? "save its .real and .imag, or .view('f8')"
                                        : "convert it with astype('f4')";
    fail(Errc::Unsupported, "[npy] '{}': dtype '{}' cannot be read ({}); {}", path, descr, kKnown,
         advice);
  }
  if (descr[0] == '>' && size_bytes(found->dtype) > 1) {
    fail(Errc::Unsupported,
         "[npy] '{}': big-endian '{}' cannot be read; convert it with astype('<{}')", path, descr,
         kind);
  }
  return found->dtype;
}

void parse_dictionary(Scanner& scanner, std::string_view path, NpyHeader& header) {
  bool has_descr = false, has_order = false, has_shape = false;
  scanner.expect('{');
  while (!scanner.accept('}')) {
    const std::string_view key = scanner.string();
    scanner.expect(':');
    if (key == "descr" && !has_descr) {
      header.dtype = parse_descr(scanner, path);
      has_descr = true;
    } else if (key == "fortran_order" && !has_order) {
      header.fortran_order = scanner.boolean();
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      header.shape = scanner.tuple();
      has_shape = true;
    } else {
      scanner.corrupt(fmt::format("the header must not have the entry '{}' here", key));
    }
    if (!scanner.accept(',')) {
      scanner.expect('}');
      break;
    }
  }
  scanner.expect_end();
  if (!has_descr || !has_order || !has_shape) {
    scanner.corrupt("the header must have descr, fortran_order and shape");
  }
}

}  // namespace

std::string npy_descr(DType dtype) {
  const auto found = std::ranges::find(kTypes, dtype, &TypeRow::dtype);
  if (found == kTypes.end()) {
    fail(Errc::Unsupported, "[npy] numpy has no {}; write f32 or f16", to_string(dtype));
  }
  return fmt::format("{}{}", size_bytes(dtype) == 1 ? '|' : '<', found->descr);
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, std::string_view path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kMagic = "\x93NUMPY";
  Scanner scanner({}, path);
  if (!text.starts_with(kMagic.substr(0, text.size())) || text.empty()) {
    scanner.corrupt("it does not begin as a .npy file does");
  }
  const auto byte_at = [&](std::size_t index) {
    if (index >= text.size()) scanner.corrupt("the file ends within its header");
    return static_cast<std::size_t>(static_cast<unsigned char>(text[index]));
  };
  const std::size_t major = byte_at(6), minor = byte_at(7);
  if (major < 1 || major > 3 || minor != 0) {
    fail(Errc::Unsupported, "[npy] '{}': versions 1.0 to 3.0 can be read, got {}.{}", path, major,
         minor);
  }
  std::size_t length = byte_at(8) | byte_at(9) << 8;
  std::size_t begin = 10;
  if (major > 1) {
    length |= byte_at(10) << 16 | byte_at(11) << 24;
    begin = 12;
  }
  if (length > text.size() - begin) scanner.corrupt("the file ends within its header");

  NpyHeader header;
  header.data_offset = begin + length;
  scanner = Scanner(text.substr(begin, length), path);
  parse_dictionary(scanner, path, header);

  std::int64_t elems = 0;
  try {
    elems = header.shape.elems();
  } catch (const Error&) {
    scanner.corrupt(fmt::format("no array has the shape {}", to_string(header.shape)));
  }
  const std::size_t left = text.size() - header.data_offset;
  if (static_cast<std::size_t>(elems) > left / size_bytes(header.dtype)) {
    fail(Errc::CorruptData,
         "[npy] '{}' is truncated: {} values of {} do not fit in the {} bytes after the "
         "header; copy or save it again",
         path, to_string(header.shape), to_string(header.dtype), left);
  }
  const std::size_t end =
      header.data_offset + static_cast<std::size_t>(elems) * size_bytes(header.dtype);
  if (text.substr(end).starts_with(kMagic)) {
    fail(Errc::Unsupported,
         "[npy] '{}' has an array after the first, and one is read; save each to a file of its own",
         path);
  }
  if (end < text.size()) {
    fail(Errc::CorruptData,
         "[npy] '{}' has {} bytes after its {} values of {}; copy or save it again", path,
         text.size() - end, to_string(header.shape), to_string(header.dtype));
  }
  return header;
}

}  // namespace tuckfold
