// tuckfold unpack, slice and cat: samples of a .tuck file as .npy files, or as bytes.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text_scan.h"
#include "cli/dataset.h"
#include "cli/meter.h"
#include "cli/standard.h"
#include "cli/table.h"
#include "cli/verbs.h"
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

void write_samples(const char* verb, const FileReader& reader, std::size_t array,
                   const SampleRange& range, const std::string& path, bool header, int threads,
                   Meter& meter) {
  const ArrayInfo& info = reader.arrays()[array];
  const bool wider = header && info.dtype == DType::BF16;
  std::vector<std::int64_t> axes = {range.samples};
  axes.insert(axes.end(), info.shape.begin(), info.shape.end());
  Output out(verb, path);
  if (header) {
    const std::string front = npy_header_text(wider ? DType::F32 : info.dtype,
                                              Shape(std::span<const std::int64_t>(axes)));
    out.write(front.data(), front.size());
  }
  const std::size_t each = sample_bytes(info);
  const std::int64_t batch = std::min(batch_samples(each, threads), range.samples);
  const HugeBuffer room(static_cast<std::size_t>(batch) * each);
  const HugeBuffer wide(wider ? 2 * room.size() : 0);
  for (std::int64_t at = 0; at < range.samples;) {
    const std::int64_t count = axes[0] = std::min(batch, range.samples - at);
    reader.read(array, range.first + at, count,
                TensorView(room.data(), info.dtype, Shape(std::span<const std::int64_t>(axes))),
                threads);
    const std::size_t bytes = static_cast<std::size_t>(count) * each;
    if (wider) widen(room.data(), static_cast<std::int64_t>(bytes / 2), wide.data());
    wider ? out.write(wide.data(), 2 * bytes) : out.write(room.data(), bytes);
    at += count;
    meter.add(bytes);
  }
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

CLI::App* add_verb(CLI::App& app, const char* name, const char* summary, const char* arrays,
                   const std::shared_ptr<Options>& options) {
  CLI::App* verb = app.add_subcommand(name, summary);
  verb->add_option("FILE", options->file,
                   "A .tuck file, a manifest of several, or - for standard input")
      ->type_name("");
  verb->add_option("--array", options->arrays, arrays)->type_name("NAME");
  verb->add_option("--threads", options->threads, "Threads; 0 is every core")
      ->type_name("N")
      ->check(CLI::Range(0, 255).description(""));
  return verb;
}

// Of the verbs that write .npy files.
void add_output(CLI::App& verb, const std::shared_ptr<Options>& options) {
  verb.add_option("-o,--out", options->out,
                  "A folder for NAME.npy of each array, OUT.npy for one, - for standard output")
      ->type_name("OUT");
  verb.add_flag("-f,--force", options->force, "Write over files that exist, or to a terminal");
  verb.add_flag("-q,--quiet", options->quiet, "No bar on the terminal");
}

}  // namespace

void add_unpack(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      add_verb(app, "unpack", "Unpack a .tuck file to .npy files", "Only these arrays", options);
  add_output(*verb, options);
  verb->footer(R"_(bf16 becomes f32, since numpy has no bf16.

Examples:
  tuckfold unpack train.tuck -o train
  tuckfold unpack train.tuck --array image -o images.npy
  tuckfold unpack - --array label -o - <train.tuck >labels.npy)_");
  verb->callback([options] { run("unpack", *options, true); });
}

void add_slice(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      add_verb(app, "slice", "Unpack some samples of a .tuck file", "Only these arrays", options);
  verb->add_option("RANGE", options->range, "FIRST:END, FIRST:, :END or one number")->type_name("");
  add_output(*verb, options);
  verb->footer(R"_(Samples are counted from 0; END is not among them.

Examples:
  tuckfold slice train.tuck 100:200 --array image -o some.npy
  tuckfold slice train.tuck 7 -o seventh)_");
  verb->callback([options] {
    if (options->range.empty()) invalid("[slice] which samples? give a range, as 100:200");
    run("slice", *options, true);
  });
}

void add_cat(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->out = "-";
  CLI::App* verb = add_verb(app, "cat", "Write the values of one array to standard output",
                            "Which, where the file has several", options);
  verb->add_option("--range", options->range,
                   "Samples: FIRST:END, FIRST:, :END or one number; default: all")
      ->type_name("RANGE");
  verb->add_flag("-f,--force", options->force, "Write to a terminal, too");
  verb->footer(R"_(Values are row-major and little-endian, without a header; unpack -o - has one.

Example:
  tuckfold cat train.tuck --array label --range :100 | od -td8)_");
  verb->callback([options] {
    options->quiet = true;
    run("cat", *options, false);
  });
}

}  // namespace tuckfold::cli
