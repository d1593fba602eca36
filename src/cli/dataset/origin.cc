#include "cli/dataset/origin.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/crc32c.h"
#include "base/io/bytes.h"
#include "base/io/little_endian.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

// The most samples of an array; two samples are always read, whatever their size.
constexpr std::int64_t kMostSamples = 256;
constexpr std::uint64_t kMostBytes = 4 << 20;
constexpr std::int64_t kDropAfter = 4;  // samples far apart: each may map 2 MiB of its file

// Combines numbers and checksums, in order, into one number.
class Digest {
 public:
  void add(std::uint64_t value) {  // splitmix64
    state_ += value + 0x9e3779b97f4a7c15u;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
  }
  void add(ByteSpan bytes) {
    add(bytes.size());
    add(crc32c(bytes));
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

std::uint64_t nanoseconds(const struct timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// The files of an input: itself, or those in the folder that it is, sorted.
std::vector<std::string> files_of(const std::string& input) {
  std::error_code unreadable;
  if (!fs::is_directory(input, unreadable)) return {input};
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator at(input, unreadable), end; at != end && !unreadable;
       at.increment(unreadable)) {
    if (at->is_regular_file(unreadable)) files.push_back(at->path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::uint64_t digest_of_files(const std::vector<std::string>& inputs) {
  Digest digest;
  for (const std::string& input : inputs) {
    if (input == "-") {  // a copy of it has the time of the copy
      digest.add(Bytes::map("/dev/stdin", "pack")->span());
      continue;
    }
    for (const std::string& file : files_of(input)) {
      struct stat info {};
      if (::stat(file.c_str(), &info) != 0) continue;
      digest.add(static_cast<std::uint64_t>(info.st_size));
      digest.add(nanoseconds(info.st_mtim));
      digest.add(nanoseconds(info.st_ctim));  // nobody can put it back
    }
  }
  return digest.value();
}

std::uint64_t digest_of_values(const Source& source) {
  Digest digest;
  for (std::size_t a = 0; a < source.arrays().size(); ++a) {
    const SourceArray& array = source.arrays()[a];
    const std::uint64_t each = std::max<std::uint64_t>(array.sample_bytes(), 1);
    const auto fit = static_cast<std::int64_t>(kMostBytes / each);
    const bool all = source.samples() <= fit;
    const std::int64_t count =
        all ? source.samples()
            : std::min(source.samples(), std::clamp<std::int64_t>(fit, 2, kMostSamples));
    const std::int64_t at_once = all ? std::max<std::int64_t>(fit, 1) : 1;
    std::vector<std::byte> values(static_cast<std::size_t>(std::min(at_once, count)) *
                                  array.sample_bytes());
    for (std::int64_t i = 0; i < count; i += at_once) {
      if (i % kDropAfter == 0) source.drop_pages();
      const std::int64_t first = all || count == 1 ? i : i * (source.samples() - 1) / (count - 1);
      const std::int64_t samples = std::min(at_once, count - i);
      source.read(a, first, samples, values.data());
      digest.add(ByteSpan(values).first(static_cast<std::size_t>(samples) * array.sample_bytes()));
    }
  }
  source.drop_pages();
  return digest.value();
}

}  // namespace

Origin origin_of(const Source& source, const std::vector<std::string>& inputs) {
  return {.samples = static_cast<std::uint64_t>(source.samples()),
          .values = digest_of_values(source),
          .files = digest_of_files(inputs)};
}

std::vector<std::string> changed_since(const std::string& file,
                                       const std::vector<std::string>& inputs) {
  std::vector<std::string> changed;
  struct stat then {};
  if (::stat(file.c_str(), &then) != 0) return changed;
  for (const std::string& input : inputs) {
    for (const std::string& one : files_of(input)) {
      struct stat now {};
      if (::stat(one.c_str(), &now) != 0) continue;
      const std::uint64_t latest = std::max(nanoseconds(now.st_mtim), nanoseconds(now.st_ctim));
      if (latest > nanoseconds(then.st_mtim)) {
        changed.push_back(one);
      }
    }
  }
  return changed;
}

}  // namespace tuckfold::cli
