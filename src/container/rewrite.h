// Files into one new file, in which some arrays may have another codec or other chunks. Chunks that
// do not change are copied as bytes, so that a lossy codec does not lose a second time.
//
//   Rewrite rewrite(files, {{.from = 0, .info = image}, {.from = 1, .info = label}});
//   rewrite.arrays()[0].packs_again;     // whether samples go through the codec
//   rewrite.write("all.tuck", {.metadata = files[0].metadata()});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tuckfold/container.h"

namespace tuckfold {

// Samples first .. first + count of an array, row-major, over files taken one after the other.
void read_files(std::span<const FileReader> files, std::size_t array, std::int64_t first,
                std::int64_t count, std::byte* out, int threads);

struct RewriteArray {
  std::size_t from = 0;  // its number in the files
  ArrayInfo info;        // as it shall be; samples_per_chunk 0: as it was
};

// What will become of an array.
struct RewrittenArray {
  std::size_t from = 0;
  ArrayInfo info;
  std::int64_t copied = 0;       // chunks whose bytes stay, or are put together anew
  std::int64_t packs_again = 0;  // chunks that are unpacked and packed
  // A lossy codec that samples were packed with before they are packed by another lossy one.
  std::optional<CodecSpec> lossy_before;
};

struct RewriteOptions {
  int threads = 0;
  std::string metadata = "{}";
  std::uint64_t seed = 0;
  bool sync = true;
  Progress progress{};  // of samples, unpacked
};

// Whether every bit comes back.
bool is_exact(const CodecSpec& spec);

class Rewrite {
 public:
  // The files or manifests agree in names, dtypes and shapes; they must live on. Of their samples, all
  // or a range are written. Throws InvalidArgument where an array cannot be written as it shall be.
  Rewrite(std::span<const FileReader> files, std::vector<RewriteArray> arrays,
          const std::optional<SampleRange>& range = {});

  std::span<const RewrittenArray> arrays() const noexcept { return arrays_; }
  std::int64_t samples() const noexcept { return end_ - first_; }
  // The file has its name when it is whole; "-" is standard output. On an Error nothing is left.
  // Returns its bytes.
  std::uint64_t write(const std::string& path, const RewriteOptions& options = {}) const;

 private:
  enum class How : unsigned char {
    Copy,   // a whole chunk of a file
    Slice,  // rows of chunks, whose bytes are contiguous
    Raw,    // rows that cannot be had alone; stored as they are, since the codec would lose more
    Pack,
  };
  struct NewChunk {
    std::uint32_t array;
    How how;
    std::int64_t first, samples;
  };
  class Work;

  void plan_as_before(std::uint32_t number);
  void plan_anew(std::uint32_t number);
  void add(std::uint32_t number, How how, std::int64_t first, std::int64_t samples);
  How how_to_slice(std::uint32_t number, std::int64_t first, std::int64_t samples) const;
  // visit(file, chunk) for the chunks of an array that have samples of a range, while it is true.
  template <class Visit>
  bool for_chunks(std::uint32_t number, std::int64_t first, std::int64_t samples,
                  const Visit& visit) const;

  std::span<const FileReader> files_;
  std::vector<std::int64_t> starts_;  // of the files' samples, and the end
  std::int64_t first_ = 0, end_ = 0;  // of those that are written
  std::vector<RewrittenArray> arrays_;
  std::vector<NewChunk> new_chunks_;  // in the order of their last samples
};

// All samples in so many ranges of about the same size. They meet where chunks of all arrays that
// stay as they are do, so that these can be copied; elsewhere only if there are no such places.
std::vector<SampleRange> cut_evenly(std::span<const FileReader> files,
                                    std::span<const RewriteArray> arrays, int ranges);

}  // namespace tuckfold
