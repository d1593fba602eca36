#include "cli/dataset/array_out.h"

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/io/destination.h"
#include "base/text_scan.h"
#include "cli/dataset/array_sink.h"
#include "container/format.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

// bf16 is the upper half of an f32.
void widen(const std::byte* from, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[4 * i] = to[4 * i + 1] = std::byte{0};
    to[4 * i + 2] = from[2 * i];
    to[4 * i + 3] = from[2 * i + 1];
  }
}

// NAME.npy in the folder; "group/image", as HDF5 names it, goes to a subfolder. A name in a file
// must not make us write outside of the folder.
std::string path_in(const char* verb, const std::string& folder, const std::string& name) {
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part(name.data() + at, end - at);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos) {
      invalid("[{}] the array {} cannot be a file in '{}'; name OUT.npy for it alone", verb,
              tuckfold::quoted(name), folder);
    }
    at = end + 1;
  }
  return (fs::path(folder) / (name + ".npy")).string();
}

}  // namespace

ArrayOut::Kind ArrayOut::kind_of(const char* verb, const std::string& out) {
  std::error_code ignored;
  const std::string ending = fs::path(out).extension().string();
  if (fs::is_directory(out, ignored)) return Kind::Folder;
  if (ending == ".npz") return Kind::Npz;
  if (ending == ".h5" || ending == ".hdf5") return Kind::Hdf5;
  if (ending == ".npy" || find_destination(verb, out).stream) return Kind::Npy;
  if (ending.empty()) return Kind::Folder;
  invalid("[{}] OUT is {}OUT.npy, OUT.npz, OUT.h5, a folder (as '{}/') or -, got '{}'", verb,
          verb == std::string_view("convert") ? "OUT.tuck, " : "", out, out);
}

std::string ArrayOut::path_of(const SourceArray& array) const {
  return kind == Kind::Folder ? path_in(verb, out, array.name) : out;
}

void ArrayOut::write(const std::vector<SourceArray>& arrays, std::int64_t samples, bool quiet,
                     const Cut& cut, const Read& read) const {
  if ((kind == Kind::Npy || kind == Kind::Bytes) && arrays.size() != 1) {
    invalid(
        "[{}] there are {} arrays; choose one with --select, or give OUT.npz or a folder with -o",
        verb, arrays.size());
  }
  std::uint64_t bytes = 0;
  for (const SourceArray& array : arrays) {
    check_absent(verb, path_of(array), force);
    bytes += static_cast<std::uint64_t>(samples) * array.sample_bytes();
  }
  ProgressBar bar("unpacking", bytes, quiet);
  const std::unique_ptr<ArraySink> sink = open_sink(*this);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    sink->begin(arrays[i], dtype_of(arrays[i]), with_samples(samples, arrays[i].sample));
    write_one(arrays[i], i, cut(i), read, *sink, bar);
    sink->end();
  }
  sink->finish();
}

void ArrayOut::write_one(const SourceArray& array, std::size_t number, const Parts& parts,
                         const Read& read, ArraySink& sink, ProgressBar& bar) const {
  const bool wider = dtype_of(array) != array.dtype;
  const std::size_t each = array.sample_bytes();
  const std::size_t bytes = static_cast<std::size_t>(parts.most) * each;
  const Lanes lanes = lanes_for(bytes, threads);
  std::vector<HugeBuffer> rooms, wide;
  for (std::int64_t i = 0; i < lanes.window; ++i) {
    rooms.emplace_back(bytes);
    wide.emplace_back(wider ? 2 * bytes : 0);
  }
  in_order(
      parts.count, lanes,
      [&](std::int64_t i, std::size_t slot, int) {
        const SampleSlice part = parts.at(i);
        read(number, part, rooms[slot].data(), lanes.threads_of_each);
        if (wider) {
          widen(rooms[slot].data(), part.samples * array.sample.elems(), wide[slot].data());
        }
      },
      [&](std::int64_t i, std::size_t slot) {
        const std::size_t unpacked = static_cast<std::size_t>(parts.at(i).samples) * each;
        wider ? sink.add(wide[slot].span().first(2 * unpacked))
              : sink.add(rooms[slot].span().first(unpacked));
        bar.add(unpacked);
      });
}

}  // namespace tuckfold::cli
