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

// The result for an array.
struct RewrittenArray {
  std::size_t from = 0;
  ArrayInfo info;
  std::int64_t copied = 0;       // chunks whose bytes stay, or are put together anew
  std::int64_t packs_again = 0;  // chunks that are unpacked and packed
  // The lossy codec that packed the samples before, if another lossy codec packs them now.
  std::optional<CodecSpec> lossy_before;
};

// Whether every bit comes back.
bool is_exact(const CodecSpec& spec);

struct RewriteOptions {
  int threads = 0;
  std::string metadata = "{}";
  std::uint64_t seed = 0;
  bool sync = true;
  Progress progress{};               // of samples, unpacked
  std::vector<ArrayCheck> checks{};  // for each array, in order, as FileWriter has them
};

struct RewriteResult {
  std::uint64_t bytes = 0;  // of the file
  // Of each array. Samples that were not packed again are as they were.
  std::vector<WrittenArray> arrays{};
};

class Rewrite {
 public:
  // The files or manifests have the same names, dtypes and shapes, and must outlive this. Writes
  // all of their samples, or a range. Throws InvalidArgument if an array cannot be written as
  // requested.
  Rewrite(std::span<const FileReader> files, std::vector<RewriteArray> arrays,
          const std::optional<SampleRange>& range = {});

  std::span<const RewrittenArray> arrays() const noexcept { return arrays_; }
  std::int64_t samples() const noexcept { return end_ - first_; }
  // The file gets its name when it is complete; "-" is standard output. After an Error no file is
  // left.
  RewriteResult write(const std::string& path, const RewriteOptions& options = {}) const;

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
  bool can_copy(std::uint32_t number, std::size_t file, std::size_t chunk) const;
  How how_to_slice(std::uint32_t number, std::int64_t first, std::int64_t samples) const;
  // visit(file, chunk) for the chunks of an array that have samples of a range, while it is true.
  template <class Visit>
  bool for_chunks(std::uint32_t number, std::int64_t first, std::int64_t samples,
                  const Visit& visit) const;

  std::span<const FileReader> files_;
  std::vector<std::int64_t> starts_;  // of the files' samples, and the end
  std::int64_t first_ = 0, end_ = 0;  // of those that are written
  std::vector<RewrittenArray> arrays_;
  std::vector<ArrayInfo> schema_;     // of the new file: the same arrays, and masks
  std::vector<NewChunk> new_chunks_;  // in the order of their last samples
};

// Splits all samples into ranges of about the same size. Ranges end at chunk boundaries of all
// arrays that stay unchanged, so that chunks can be copied; elsewhere only if there are no such
// boundaries.
std::vector<SampleRange> cut_evenly(std::span<const FileReader> files,
                                    std::span<const RewriteArray> arrays, int ranges);

}  // namespace tuckfold
