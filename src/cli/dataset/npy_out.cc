#include "cli/dataset/npy_out.h"

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/text_scan.h"
#include "cli/terminal/output.h"
#include "container/format.h"
#include "inputs/npy.h"

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

// NAME.npy in the folder; "group/image", as HDF5 has it, lies in a folder of its own there. A file
// from elsewhere must not make us write elsewhere.
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

void make_folder_of(const char* verb, const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code refused;
  fs::create_directories(folder, refused);
  if (refused) {
    fail(Errc::Io, "[{}] cannot create the folder '{}': {}", verb, folder.string(),
         refused.message());
  }
}

}  // namespace

std::string NpyOut::path_of(const SourceArray& array) const {
  return one_file() ? out : path_in(verb, out, array.name);
}

void NpyOut::write(const std::vector<SourceArray>& arrays, const SampleRange& range, bool quiet,
                   const Cut& cut, const Read& read) const {
  std::uint64_t bytes = 0;
  for (const SourceArray& array : arrays) {
    if (out != "-") check_absent(verb, path_of(array), force);
    bytes += static_cast<std::uint64_t>(range.samples) * array.sample_bytes();
  }
  ProgressBar bar("unpacking", bytes, quiet);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!one_file()) make_folder_of(verb, path_of(arrays[i]));
    write_one(arrays[i], i, range.samples, cut(i), read, bar);
  }
}

void NpyOut::write_one(const SourceArray& array, std::size_t number, std::int64_t samples,
                       const Parts& parts, const Read& read, ProgressBar& bar) const {
  const bool wider = dtype_of(array) != array.dtype;
  Output file(verb, path_of(array));
  if (header) {
    const std::string front = npy_header_text(dtype_of(array), with_samples(samples, array.sample));
    file.write(front.data(), front.size());
  }
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
        const SampleRange part = parts.at(i);
        read(number, part, rooms[slot].data(), lanes.threads_of_each);
        if (wider) {
          widen(rooms[slot].data(), part.samples * array.sample.elems(), wide[slot].data());
        }
      },
      [&](std::int64_t i, std::size_t slot) {
        const std::size_t unpacked = static_cast<std::size_t>(parts.at(i).samples) * each;
        wider ? file.write(wide[slot].data(), 2 * unpacked)
              : file.write(rooms[slot].data(), unpacked);
        bar.add(unpacked);
      });
  file.finish();
}

}  // namespace tuckfold::cli
