// What the verbs of dataset files share: options that name inputs, ranges of samples, figures as
// text, and files that must not be written over by mistake.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/dataset/array.h"
#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

inline constexpr const char* kSelectText =
    "Only these arrays, as the inputs name them: A,B or repeated";
// --select NAME: one value each time, so that a file may follow; several with commas.
void add_select(CLI::App& verb, std::vector<std::string>& names, const char* text);

// Inputs of pack, diff and convert, as they are given.
struct InputOptions {
  std::vector<std::string> files;
  std::string format, dtype, shape;
  std::vector<std::string> arrays, rename;
  bool side_by_side = false;

  void add_to(CLI::App& verb, const char* select = kSelectText);
  // The options without the files, where a verb names these in its own way.
  void add_options_to(CLI::App& verb, const char* select = kSelectText);
  // --select and --rename alone.
  void add_names_to(CLI::App& verb, const char* select = kSelectText);
  // Throws InvalidArgument for a pair of --rename that is none.
  std::map<std::string, std::string, std::less<>> renames(const char* verb) const;
  std::unique_ptr<Source> open(const char* verb, bool quiet = false) const;
};

// "100:200", "100:", ":200" or "7", of so many samples. Throws InvalidArgument.
SampleRange parse_range(const char* verb, std::string_view text, std::int64_t samples);

// "12.3 MB".
std::string size_text(std::uint64_t bytes);

// Throws InvalidArgument where the path names something and --force was not given, Io where that is
// a folder.
void check_absent(const char* verb, const std::string& path, bool force);

// How many samples to hold at a time: enough to keep every thread busy, flat in the file's size.
std::int64_t batch_samples(std::uint64_t bytes_of_sample, int threads);

// Samples in parts that are good to read one by one, in order. A large file has many: they are
// worked out when they are asked for.
struct Parts {
  std::int64_t count = 0;
  std::int64_t most = 0;  // samples of the largest
  std::function<SampleRange(std::int64_t)> at;
};

// A range, cut where chunks end, so that each part is unpacked from one. The reader must outlive
// it.
Parts cut_at_chunks(const FileReader& reader, std::size_t array, const SampleRange& range);

// About `most` values of an array, whole samples spread over all of them.
Array trial_part_of(const Source& source, std::size_t array, std::int64_t most);

// Reads on several threads. What a thread throws is thrown here.
void read_samples(const Source& source, std::size_t array, std::int64_t first, std::int64_t count,
                  std::byte* out, int threads);

}  // namespace tuckfold::cli
