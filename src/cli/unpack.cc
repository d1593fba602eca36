// tuckfold unpack, slice and cat: samples of a .tuck file as .npy files, or as bytes.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/text_scan.h"
#include "cli/dataset.h"
#include "cli/meter.h"
#include "cli/standard.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "container/format.h"
#include "container/npy.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string file, out, range;
  std::vector<std::string> arrays;
  int threads = 0;
  bool force = false, quiet = false;
};

// A file that has its name when it is whole; "-" is standard output.
class Output {
 public:
  Output(const char* verb, const std::string& path) : verb_(verb), path_(path) {
    if (path == "-") {
      file_ = stdout;
      return;
    }
    file_ = std::fopen(partial().c_str(), "wbe");
    if (file_ == nullptr) refuse("create");
  }
  ~Output() {
    if (file_ == nullptr || file_ == stdout) return;
    std::fclose(file_);
    ::unlink(partial().c_str());
  }
  void write(const void* bytes, std::size_t count) {
    if (std::fwrite(bytes, 1, count, file_) != count) refuse("write");
  }
  void finish() {
    if (std::fflush(file_) != 0) refuse("write");
    if (file_ == stdout) return;
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!closed || std::rename(partial().c_str(), path_.c_str()) != 0) refuse("write");
  }

 private:
  std::string partial() const { return path_ + ".partial"; }
  [[noreturn]] void refuse(const char* what) const {
    const int reason = errno;
    fail(Errc::Io, "[{}] cannot {} {}: {}", verb_, what,
         path_ == "-" ? "to standard output" : fmt::format("'{}'", path_), std::strerror(reason));
  }
  const char* verb_;
  std::string path_;
  std::FILE* file_ = nullptr;
};

// bf16 becomes f32, whose upper half it is: numpy has no bf16.
void widen(const std::byte* from, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[4 * i] = to[4 * i + 1] = std::byte{0};
    to[4 * i + 2] = from[2 * i];
    to[4 * i + 3] = from[2 * i + 1];
  }
}

// A range, cut where chunks end: each part is unpacked from one chunk.
std::vector<SampleRange> cut_at_chunks(const FileReader& reader, std::size_t array,
                                       const SampleRange& range) {
  std::vector<SampleRange> parts;
  for (const ChunkInfo& chunk : reader.chunks(array)) {
    const std::int64_t first = std::max(range.first, chunk.first);
    const std::int64_t end = std::min(range.first + range.samples, chunk.first + chunk.samples);
    if (first < end) parts.push_back({first, end - first});
  }
  return parts;
}

void write_samples(const char* verb, const FileReader& reader, std::size_t array,
                   const SampleRange& range, const std::string& path, bool header, int threads,
                   Meter& meter) {
  const ArrayInfo& info = reader.arrays()[array];
  const bool wider = header && info.dtype == DType::BF16;
  Output out(verb, path);
  if (header) {
    const std::string front =
        npy_header_text(wider ? DType::F32 : info.dtype, with_samples(range.samples, info.shape));
    out.write(front.data(), front.size());
  }
  const std::size_t each = sample_bytes(info);
  const std::vector<SampleRange> parts = cut_at_chunks(reader, array, range);
  std::int64_t most = 0;  // samples of a part
  for (const SampleRange& part : parts) most = std::max(most, part.samples);
  const std::size_t bytes = static_cast<std::size_t>(most) * each;
  const Lanes lanes = lanes_for(bytes, threads);
  std::vector<HugeBuffer> rooms, wide;
  for (std::int64_t i = 0; i < lanes.window; ++i) {
    rooms.emplace_back(bytes);
    wide.emplace_back(wider ? 2 * bytes : 0);
  }
  in_order(
      static_cast<std::int64_t>(parts.size()), lanes,
      [&](std::int64_t i, std::size_t slot, int) {
        const SampleRange& part = parts[static_cast<std::size_t>(i)];
        reader.read(
            array, part.first, part.samples,
            TensorView(rooms[slot].data(), info.dtype, with_samples(part.samples, info.shape)),
            lanes.threads_of_each);
        if (wider) {
          widen(rooms[slot].data(), part.samples * info.shape.elems(), wide[slot].data());
        }
      },
      [&](std::int64_t i, std::size_t slot) {
        const std::size_t unpacked =
            static_cast<std::size_t>(parts[static_cast<std::size_t>(i)].samples) * each;
        wider ? out.write(wide[slot].data(), 2 * unpacked)
              : out.write(rooms[slot].data(), unpacked);
        meter.add(unpacked);
      });
  out.finish();
}

std::vector<std::size_t> chosen(const FileReader& reader, const std::vector<std::string>& names) {
  std::vector<std::size_t> arrays;
  for (const std::string& name : names) arrays.push_back(reader.find(name));
  for (std::size_t a = 0; names.empty() && a < reader.arrays().size(); ++a) arrays.push_back(a);
  return arrays;
}

// NAME.npy in the folder; "group/image", as HDF5 has it, lies in a folder of its own there. A file
// from elsewhere must not make us write elsewhere.
std::string path_in(const char* verb, const std::string& folder, const std::string& name) {
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part(name.data() + at, end - at);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos) {
      invalid("[{}] the array {} cannot be a file in '{}'; take it with --array NAME -o OUT.npy",
              verb, tuckfold::quoted(name), folder);
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

void run(const char* verb, const Options& options, bool header) {
  if (options.file.empty()) invalid("[{}] name a .tuck file", verb);
  if (options.out.empty()) invalid("[{}] give the place to write to: -o", verb);
  if (options.out == "-") check_stdout(verb, options.force);
  const FileReader reader(input_path(verb, options.file, options.quiet));
  const SampleRange range = options.range.empty()
                                ? SampleRange{0, reader.samples()}
                                : parse_range(verb, options.range, reader.samples());
  const std::vector<std::size_t> arrays = chosen(reader, options.arrays);
  const bool one_file = options.out == "-" || options.out.ends_with(".npy") || !header;
  if (one_file && arrays.size() != 1) {
    invalid("[{}] the file has {} arrays; choose one with --array, or give a folder with -o", verb,
            arrays.size());
  }
  const auto path_of = [&](std::size_t array) {
    return one_file ? options.out : path_in(verb, options.out, reader.arrays()[array].name);
  };
  std::uint64_t bytes = 0;
  for (const std::size_t array : arrays) {
    if (options.out != "-") check_absent(verb, path_of(array), options.force);
    bytes += static_cast<std::uint64_t>(range.samples) * sample_bytes(reader.arrays()[array]);
  }
  Meter meter("unpacking", bytes, options.quiet);
  for (const std::size_t array : arrays) {
    if (!one_file) make_folder_of(verb, path_of(array));
    write_samples(verb, reader, array, range, path_of(array), header, thread_count(options.threads),
                  meter);
  }
}

CLI::App* add_verb(CLI::App& app, const char* name, const char* summary,
                   const std::shared_ptr<Options>& options) {
  CLI::App* verb = app.add_subcommand(name, summary);
  verb->add_option("FILE", options->file,
                   "A .tuck file, a manifest of several, or - for standard input")
      ->type_name("");
  verb->add_option("--array", options->arrays, "Only these arrays")->type_name("NAME");
  verb->add_option("--threads", options->threads, "Threads; 0 is every core")
      ->type_name("N")
      ->check(CLI::Range(0, 255).description(""));
  verb->add_flag("-q,--quiet", options->quiet, "No bar on the terminal");
  return verb;
}

}  // namespace

void add_unpack(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, "unpack", "Unpack a .tuck file to .npy files", options);
  verb->add_option("-o,--out", options->out,
                   "A folder for NAME.npy of each array, OUT.npy for one, - for standard output")
      ->type_name("OUT");
  verb->add_flag("-f,--force", options->force, "Write over files that exist, or to a terminal");
  verb->footer(
      "bf16 becomes f32, since numpy has no bf16.\n\nExamples:\n  tuckfold unpack train.tuck -o "
      "train\n  tuckfold unpack train.tuck --array image -o images.npy\n  tuckfold unpack - "
      "--array "
      "label -o - <train.tuck | tail -c 16 | xxd");
  verb->callback([options] { run("unpack", *options, true); });
}

void add_slice(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, "slice", "Unpack some samples of a .tuck file", options);
  verb->add_option("RANGE", options->range, "FIRST:END, FIRST:, :END or one number")->type_name("");
  verb->add_option("-o,--out", options->out, "As for unpack")->type_name("OUT");
  verb->add_flag("-f,--force", options->force, "Write over files that exist, or to a terminal");
  verb->footer("Example:\n  tuckfold slice train.tuck 100:200 --array image -o some.npy");
  verb->callback([options] {
    if (options->range.empty()) invalid("[slice] which samples? give a range, as 100:200");
    run("slice", *options, true);
  });
}

void add_cat(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->out = "-";
  CLI::App* verb =
      add_verb(app, "cat", "Write the values of one array to standard output", options);
  verb->add_option("--range", options->range, "FIRST:END, FIRST:, :END or one number")
      ->type_name("RANGE");
  verb->footer(
      "Values are row-major and little-endian, without a header.\n\nExample:\n  tuckfold cat "
      "train.tuck --array label --range :100 | xxd");
  verb->add_flag("-f,--force", options->force, "Write to a terminal, too");
  verb->callback([options] {
    options->quiet = true;
    run("cat", *options, false);
  });
}

}  // namespace tuckfold::cli
