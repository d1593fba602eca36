// Arrays as files of other formats: the outputs of unpack, slice, cat and convert.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/dataset/dataset.h"
#include "cli/terminal/progress_bar.h"

namespace tuckfold::cli {

class ArraySink;

struct ArrayOut {
  enum class Kind : unsigned char {
    Npy,     // OUT.npy or -, for one array
    Bytes,   // its values without a header
    Folder,  // for NAME.npy of each
    Npz,     // OUT.npz
    Hdf5,    // OUT.h5
  };

  const char* verb;
  std::string out;
  Kind kind = Kind::Npy;
  bool force = false;  // over files that exist
  int threads = 1;
  std::string metadata = {};  // of the file that is unpacked: HDF5 has its attributes

  // The kind that a path's ending asks for. Throws InvalidArgument if it is none of these.
  static Kind kind_of(const char* verb, const std::string& out);

  // The samples of arrays[number], in parts.
  using Cut = std::function<Parts(std::size_t number)>;
  // Fills the buffer with a part of arrays[number]; called for several at once.
  using Read =
      std::function<void(std::size_t number, const SampleSlice& part, std::byte* to, int threads)>;
  // Throws before anything is written if a file exists that may not be replaced. bf16 becomes f32,
  // because the other formats have no bf16.
  void write(const std::vector<SourceArray>& arrays, std::int64_t samples, bool quiet,
             const Cut& cut, const Read& read) const;

  std::string path_of(const SourceArray& array) const;
  DType dtype_of(const SourceArray& array) const {
    return kind != Kind::Bytes && array.dtype == DType::BF16 ? DType::F32 : array.dtype;
  }

 private:
  void write_one(const SourceArray& array, std::size_t number, const Parts& parts, const Read& read,
                 ArraySink& sink, ProgressBar& bar) const;
};

}  // namespace tuckfold::cli
