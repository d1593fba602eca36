// The source of a dataset: arrays with the same number of samples, read a range at a time.
//
//   const std::filesystem::path inputs[] = {"train-images-idx3-ubyte.gz",
//                                           "train-labels-idx1-ubyte.gz"};
//   const std::unique_ptr<Source> source = open_source(inputs, {});
//   source->arrays()[0];                       // {"image", DType::U8, {28, 28}}
//   source->read(0, 1000, 64, batch.data());   // samples 1000 to 1063 of the images, row-major
//
// Files are mapped, so one may be larger than memory; none may shrink while a source reads it. What
// a file says of its sizes is checked against its size before anything is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/fill_value.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

struct SourceArray {
  std::string name;
  DType dtype = DType::F32;
  Shape sample;  // the shape of one sample
  // Values that the input names as missing ones, of dtypes that lossy codecs take.
  std::vector<FillValue> fill{};

  std::size_t sample_bytes() const {
    return static_cast<std::size_t>(sample.elems()) * size_bytes(dtype);
  }
  friend bool operator==(const SourceArray&, const SourceArray&) = default;
};

// Attributes as JSON objects: their values, and the dtypes of those that are numbers.
struct SourceAttributes {
  std::string values, types;
};

// What inputs say about their samples, in addition to the values.
struct SourceAbout {
  std::vector<std::string> classes;  // names of the labels 0, 1, …
  std::vector<std::string> files;    // of each sample, below the folder that was given
  // Of the file, and of arrays by name.
  SourceAttributes attributes;
  std::map<std::string, SourceAttributes, std::less<>> array_attributes;
  std::int64_t attributes_left_out = 0;  // too long, or of types that JSON lacks

  // A JSON object, "{}" if all is empty. Lists of more than kMostNames names or kMostBytes bytes are
  // left out, and their lengths are given instead. Bytes of a name that are not UTF-8 become U+FFFD.
  std::string json(bool with_files) const;
  static constexpr std::size_t kMostNames = 65536;
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;
};

class Source {
 public:
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::span<const SourceArray> arrays() const noexcept { return arrays_; }
  std::int64_t samples() const noexcept { return samples_; }

  // Writes `count` samples of one array from sample `first` on, row-major. Any number of threads
  // may read at once. Throws InvalidArgument for a range outside of the array or a value that its
  // dtype does not hold, CorruptData for what only decoding finds.
  void read(std::size_t array, std::int64_t first, std::int64_t count, std::byte* out) const;

  // The same without a copy if samples are in memory, row-major and aligned: returns `room`, or
  // their address, which stays valid as long as the source.
  const std::byte* fetch(std::size_t array, std::int64_t first, std::int64_t count,
                         std::byte* room) const;
  // Whether fetch() needs no room, for the first sample at least.
  bool is_in_memory(std::size_t array) const {
    return has_bytes(array, 0, std::min<std::int64_t>(samples_, 1)) &&
           find_samples(array, 0, 1) != nullptr;
  }

  // Unmaps the pages of mapped files from this process's memory (Bytes::drop_pages), for callers
  // that read samples far apart.
  virtual void drop_pages() const noexcept {}

  const SourceAbout& about() const noexcept { return about_; }
  void set_about(SourceAbout about) { about_ = std::move(about); }

  void rename(std::size_t array, std::string name);
  // Adds a fill value to those of the array, if it is another one.
  void add_fill(std::size_t array, FillValue value) {
    std::vector<FillValue>& fill = arrays_[array].fill;
    if (std::ranges::find(fill, value) == fill.end()) fill.push_back(value);
  }

 protected:
  Source(std::vector<SourceArray> arrays, std::int64_t samples)
      : arrays_(std::move(arrays)), samples_(samples) {}

  // For sources made of sources.
  static const std::byte* find(const Source& part, std::size_t array, std::int64_t first,
                               std::int64_t count) {
    return part.find_samples(array, first, count);
  }

 private:
  // The range is inside of the array, and has bytes.
  virtual void read_samples(std::size_t array, std::int64_t first, std::int64_t count,
                            std::byte* out) const = 0;
  // Their address, or null; the range is as above.
  virtual const std::byte* find_samples(std::size_t /*array*/, std::int64_t /*first*/,
                                        std::int64_t /*count*/) const {
    return nullptr;
  }
  bool has_bytes(std::size_t array, std::int64_t first, std::int64_t count) const;

  std::vector<SourceArray> arrays_;
  std::int64_t samples_;
  SourceAbout about_;
};

struct SourceOptions {
  std::string format;               // "npz"; empty: found from the contents, then the extension
  std::vector<std::string> arrays;  // those to take, as the files name them; empty: all
  std::map<std::string, std::string, std::less<>> rename;  // {"cls", "label"}: their name, ours
  std::optional<DType> dtype;                              // of raw files, which do not say it
  std::optional<Shape> sample;                             // of raw files: the shape of one sample
  // Each input is an array of its own, named as its file, instead of more samples of one array.
  bool side_by_side = false;
  // HDF5 files may lead to others: external storage, external links, virtual datasets.
  bool allow_external = false;
  std::string split;  // "train": of folders that have several
};

// Inputs of one kind are one dataset, with samples in the order of the inputs. A folder stands for
// the files in it. Throws InvalidArgument if inputs do not fit each other; CorruptData, Unsupported
// or Io if one cannot be read.
std::unique_ptr<Source> open_source(std::span<const std::filesystem::path> inputs,
                                    const SourceOptions& options);

// An array of an input, whether or not it can be read together with the others, or at all.
struct InputArray {
  std::string name;
  std::string dtype;  // of ours, or as the file has it
  Shape shape;        // the leading axis counts samples
  std::uint64_t bytes = 0;
  std::string refused;  // why it cannot be read; empty: it can
};
struct InputListing {
  std::string_view format;
  std::vector<InputArray> arrays;
};
// The arrays of one input, a file or a folder.
InputListing list_input(const std::filesystem::path& input, const SourceOptions& options);

// For a help text: the names that SourceOptions::format takes, and what each reads.
struct SourceFormatInfo {
  std::string_view name, summary;
};
std::vector<SourceFormatInfo> list_source_formats();

}  // namespace tuckfold
