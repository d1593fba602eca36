// Arrays as .npy files: what unpack, slice, cat and convert write.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/dataset/dataset.h"
#include "cli/terminal/progress_bar.h"

namespace tuckfold::cli {

struct NpyOut {
  const char* verb;
  std::string out;     // OUT.npy or - for one array; else a folder, for NAME.npy of each
  bool header = true;  // without, only values are written
  bool force = false;  // over files that exist
  int threads = 1;

  // The range of arrays[number].
  using Cut = std::function<Parts(std::size_t number)>;
  // Fills the buffer with a part of arrays[number]; called for several at once.
  using Read =
      std::function<void(std::size_t number, const SampleRange& part, std::byte* to, int threads)>;
  // Refuses before anything is written where a file is in the way. bf16 becomes f32, since numpy
  // has no bf16.
  void write(const std::vector<SourceArray>& arrays, const SampleRange& range, bool quiet,
             const Cut& cut, const Read& read) const;

  std::string path_of(const SourceArray& array) const;
  DType dtype_of(const SourceArray& array) const {
    return header && array.dtype == DType::BF16 ? DType::F32 : array.dtype;
  }

 private:
  bool one_file() const { return out == "-" || out.ends_with(".npy") || !header; }
  void write_one(const SourceArray& array, std::size_t number, std::int64_t samples,
                 const Parts& parts, const Read& read, ProgressBar& bar) const;
};

}  // namespace tuckfold::cli
