// What the verbs of dataset files share: options that name inputs, ranges of samples, figures as
// text, and files that must not be written over by mistake.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/dataset/array.h"
#include "cli/dataset/fill_option.h"
#include "cli/terminal/command.h"
#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

inline constexpr const char* kSelectText =
    "Only these arrays, as the inputs name them: A,B or repeated";
// --select NAME: one value each time, so that a file may follow; several with commas.
void add_select(Command& verb, std::vector<std::string>& names, const char* text);

// Inputs of pack, diff and convert, as they are given.
struct InputOptions {
  std::vector<std::string> files;
  std::string format, dtype, shape, split;
  std::vector<std::string> arrays, rename;
  bool side_by_side = false, allow_external = false, strict = false;
  FillOption fill;

  void add_to(Command& verb, const char* select = kSelectText);
  // The options without the files, where a verb names these in its own way.
  void add_options_to(Command& verb, const char* select = kSelectText);
  // --format and what else says how files are read, without --select and --rename.
  void add_format_to(Command& verb);
  // --select and --rename alone.
  void add_names_to(Command& verb, const char* select = kSelectText);
  // Throws InvalidArgument for a pair of --rename that is none.
  std::map<std::string, std::string, std::less<>> renames(const char* verb) const;
  // For the readers of inputs, without the files.
  SourceOptions source_options(const char* verb) const;
  std::unique_ptr<Source> open(const char* verb, bool quiet = false) const;
};

// --strict of the verbs that read .tuck files.
void add_strict(Command& verb, bool& strict);
// Opens a file or a manifest. Warns on standard error where samples may be missing; with `strict`
// that is CorruptData.
FileReader open_reader(const std::string& path, bool strict);

// Bytes of an array's chunks, and of those of its mask.
std::uint64_t packed_bytes_of(const FileReader& reader, std::size_t array);

// Samples first, first + step, … as many as `samples`.
struct SampleSlice {
  std::int64_t first = 0, samples = 0, step = 1;

  std::int64_t at(std::int64_t i) const { return first + i * step; }
  std::int64_t span() const { return samples == 0 ? 0 : (samples - 1) * step + 1; }
};

inline constexpr const char* kRangeText =
    "Samples as in Python, 100:200, -10: or ::2, or one number";
// "100:200", "-10:", "::2" or "7", of so many samples. Throws InvalidArgument where that is not among
// them.
SampleSlice parse_range(const char* verb, std::string_view text, std::int64_t samples);

// Moves the samples of a slice, which were read together with those between them, next to each
// other.
void compact(const SampleSlice& slice, std::size_t sample_bytes, std::byte* samples);

// "12.3 MB".
std::string size_text(std::uint64_t bytes);

// Throws InvalidArgument if the path names a file and --force was not given, Io if it is a folder.
// Pipes and devices, including "-", are written directly and need no --force.
void check_absent(const char* verb, const std::string& path, bool force);

// How many samples to hold at a time: enough for every thread, independent of the file's size.
std::int64_t batch_samples(std::uint64_t bytes_of_sample, int threads);

// Samples in parts, to be read one after the other. A large file has many parts, so they are
// computed on demand.
struct Parts {
  std::int64_t count = 0;
  std::int64_t most = 0;  // samples that the largest needs room for
  std::function<SampleSlice(std::int64_t)> at;
};

// Samples, cut where chunks end, so that each part is unpacked from one. The reader must outlive it.
Parts cut_at_chunks(const FileReader& reader, std::size_t array, const SampleSlice& slice);

// About `most` values of an array, whole samples spread over all of them; read(sample, to) reads one.
// Fill values are marked and have others in their places, as the writer packs them for a lossy
// codec, unless they are to stay.
enum class Fill : unsigned char { Replace, Stay };
Array trial_part_of(const SourceArray& array, std::int64_t samples, std::int64_t most,
                    const std::function<void(std::int64_t, std::byte*)>& read,
                    Fill fill = Fill::Replace);
Array trial_part_of(const Source& source, std::size_t array, std::int64_t most,
                    Fill fill = Fill::Replace);

// Reads on several threads. An exception of a thread is rethrown here.
void read_samples(const Source& source, std::size_t array, std::int64_t first, std::int64_t count,
                  std::byte* out, int threads);

}  // namespace tuckfold::cli
