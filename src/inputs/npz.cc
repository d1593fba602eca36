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

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions& options) {
  SlabBuilder builder("npz", input.path);
  builder.keep(input.file);
  for (const ZipMember& member : list_zip(input.bytes(), input.path)) {
    constexpr std::string_view kExtension = ".npy";
    const bool is_array = member.name.ends_with(kExtension);
    const std::string name =
        member.name.substr(0, member.name.size() - (is_array ? kExtension.size() : 0));
    if (!wanted(options, name)) continue;
    if (!is_array) {
      fail(Errc::Unsupported, "[npz] '{}': member {} is no .npy file; name the arrays to take",
           input.path, tuckfold::quoted(member.name));
    }
    const std::shared_ptr<const Bytes> bytes = read_member(member, input.path);
    if (member.deflated) input.file->drop_pages();
    builder.keep(bytes);
    builder.add_npy(name, bytes->span(), fmt::format("{}:{}", input.path, member.name));
  }
  return builder.finish();
}

}  // namespace

const SourceFormat kNpzSource = {.name = "npz",
                                 .summary = "arrays of NumPy's in one archive, deflated or not",
                                 .extensions = ".npz",
                                 .looks_like = looks_like,
                                 .open = open_each<open_one>};

}  // namespace tuckfold
