// Samples to read from any input: .tuck files, manifests, or the inputs of pack.
//
//   const Samples samples("diff", inputs);
//   samples.read(samples.find("diff", "image"), 1000, 64, batch.data(), threads);
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/dataset/dataset.h"

namespace tuckfold::cli {

// Whether it is a .tuck file or a manifest, by its name or its first bytes.
bool is_tuck(const std::string& path);

class Samples {
 public:
  // Files of one kind, with samples in the order of the files; applies --select and --rename.
  Samples(const char* verb, const InputOptions& inputs);

  std::span<const SourceArray> arrays() const noexcept { return arrays_; }
  std::int64_t samples() const noexcept { return samples_; }
  const std::string& name() const noexcept { return name_; }  // "a.tuck", or "a.tuck and 2 more"

  // The number of the array of that name. Throws InvalidArgument with the nearest one.
  std::size_t find(const char* verb, std::string_view name) const;

  // Samples first .. first + count, row-major.
  void read(std::size_t array, std::int64_t first, std::int64_t count, std::byte* out,
            int threads) const;

  void read(std::size_t array, const SampleSlice& slice, std::byte* out, int threads) const;

  // How many samples of an array to hold at a time; whole chunks, so that few are unpacked twice.
  std::int64_t batch(std::size_t array, int threads) const;

  // All samples of .tuck files, chunk by chunk.
  Parts parts(std::size_t array) const;

  // The .tuck files and manifests, in order; empty where the samples come from elsewhere.
  std::span<const FileReader> files() const noexcept { return files_; }
  // Which array of the .tuck files this one is.
  std::size_t column(std::size_t array) const noexcept { return columns_[array]; }
  // The attribute scale_factor of an array; 1 where it has none.
  double scale_factor(std::size_t array) const;
  // Bytes of the array's chunks as stored in the .tuck files.
  std::uint64_t packed_bytes(std::size_t array) const;

 private:
  void open_files(const char* verb, const InputOptions& inputs);

  std::string name_;
  std::vector<SourceArray> arrays_;
  std::int64_t samples_ = 0;
  std::vector<FileReader> files_;
  std::vector<std::size_t> columns_;
  std::unique_ptr<Source> source_;
};

// All arrays of the inputs. Where these do not fit together, those that have one of the names, and the
// names of the others.
struct NamedSamples {
  Samples samples;
  std::vector<std::string> left_out;
};
NamedSamples open_named(const char* verb, const InputOptions& inputs,
                        std::span<const std::string> names);

}  // namespace tuckfold::cli
