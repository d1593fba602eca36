// .npz files: a zip archive whose members are .npy files, each an array of the dataset.
#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/join.h"
#include "inputs/slab.h"
#include "inputs/zip.h"

namespace tuckfold {
namespace {

// An archive without members begins with its end.
bool looks_like(const SourceInput& input) {
  return input.text().starts_with("PK\x03\x04") || input.text().starts_with("PK\x05\x06");
}

constexpr std::string_view kExtension = ".npy";

// The array that a member is, or its whole name where it is none.
std::string name_of(const ZipMember& member) {
  return member.name.substr(
      0, member.name.size() - (member.name.ends_with(kExtension) ? kExtension.size() : 0));
}

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions& options) {
  SlabBuilder builder("npz", input.path);
  builder.keep(input.file);
  for (const ZipMember& member : list_zip(input.bytes(), input.path)) {
    const std::string name = name_of(member);
    if (!wanted(options, name)) continue;
    if (!member.name.ends_with(kExtension)) {
      fail_over_arrays(Errc::Unsupported, input.path, "[npz] '{}': member {} is no .npy file",
                       input.path, tuckfold::quoted(member.name));
    }
    const std::shared_ptr<const Bytes> bytes = read_member(member, input.path);
    if (member.deflated) input.file->drop_pages();
    builder.keep(bytes);
    try {
      builder.add_npy(name, bytes->span(), fmt::format("{}:{}", input.path, member.name));
    } catch (const Error& error) {
      if (error.code() == Errc::CorruptData) throw;
      throw ArraysError(error.code(), input.path, error.what());
    }
  }
  return builder.finish();
}

// "<U4" of a header that no array of ours has.
std::string foreign_dtype(const Bytes& npy) {
  const std::string_view text(reinterpret_cast<const char*>(npy.span().data()), npy.span().size());
  const std::size_t key = text.substr(0, 4096).find("'descr': '");
  if (key == text.npos) return "?";
  const std::string_view value = text.substr(key + 10, 32);
  const std::size_t end = value.find('\'');
  return end == value.npos ? "?" : std::string(value.substr(0, end));
}

std::vector<InputArray> list(const SourceInput& input, const SourceOptions&) {
  std::vector<InputArray> arrays;
  for (const ZipMember& member : list_zip(input.bytes(), input.path)) {
    InputArray array{.name = name_of(member), .dtype = "?", .shape = {}, .bytes = member.size};
    if (!member.name.ends_with(kExtension)) {
      array.refused = "no .npy file";
      arrays.push_back(std::move(array));
      continue;
    }
    const std::shared_ptr<const Bytes> bytes = read_member(member, input.path);
    try {
      const NpyHeader header =
          parse_npy_header(bytes->span(), fmt::format("{}:{}", input.path, member.name));
      array.dtype = to_string(header.dtype);
      array.shape = header.shape;
      array.bytes = static_cast<std::uint64_t>(header.shape.elems()) * size_bytes(header.dtype);
    } catch (const Error& error) {
      if (error.code() != Errc::Unsupported) throw;
      array.dtype = foreign_dtype(*bytes);
      array.refused = "a type that is not read";
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace

const SourceFormat kNpzSource = {.name = "npz",
                                 .summary = "arrays of NumPy's in one archive, deflated or not",
                                 .extensions = ".npz",
                                 .looks_like = looks_like,
                                 .open = open_each<open_one>,
                                 .list = list};

}  // namespace tuckfold
