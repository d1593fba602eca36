#include "cli/dataset/pack_write.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/fail.h"
#include "base/io/destination.h"
#include "base/io/file.h"
#include "cli/dataset/dataset.h"
#include "cli/dataset/measure.h"
#include "cli/dataset/origin.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress_bar.h"
#include "container/resume.h"
#include "container/sharded.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_of(const std::vector<ArrayInfo>& arrays) {
  std::uint64_t bytes = 0;
  for (const ArrayInfo& array : arrays) bytes += array.sample_bytes();
  return bytes;
}

// Writes the files of one run, and composes the message if it ends early.
class PackRun {
 public:
  PackRun(const PackOutput& output, const Source& source, const std::vector<ArrayInfo>& arrays)
      : output_(output),
        source_(source),
        arrays_(arrays),
        path_(find_destination("pack", output.path).path),
        each_(bytes_of(arrays)),
        bar_("packing", static_cast<std::uint64_t>(source.samples()) * each_, output.quiet) {
    // A file that cannot be resumed needs no record of its origin.
    if (!output.append && !output.temporary) origin_ = origin_of(source, output.inputs);
    // Inputs that look as they did then are as they were; of others, samples decide.
    const std::optional<Begun> then = output.resume ? begun_at(path_) : std::nullopt;
    if (output.resume) changed_ = changed_since(path_ + ".partial", output.inputs);
    compare_ = then && (then->origin.files != origin_.files || output.reads_others);
    if (compare_) origin_.files = then->origin.files;
    total_.packed_samples = source.samples();
    total_.arrays.resize(arrays.size());
  }

  PackTotal run() {
    const bool useless = !output_.append && find_leftover(path_) == Leftover::Useless;
    if (useless || (output_.force && !output_.resume)) remove_leftover(path_);
    output_.shards > 0 ? write_shards() : write_file(path_, 0, source_.samples());
    if (output_.append && output_.shards > 0) {
      const FileReader all(path_);
      total_.samples = all.samples();
      total_.file_bytes = all.file_bytes();
    }
    total_.bytes = static_cast<std::uint64_t>(total_.samples) * each_;
    total_.seconds = bar_.seconds();
    return total_;
  }

  // The error's message, with how to resume. Removes files that are of no use.
  std::string ended(std::string_view text, bool resumable) {
    constexpr std::uintmax_t kLittle = 4096;  // a start and a schema, hardly a chunk
    const std::string partial = path_ + ".partial";
    if (output_.append || output_.temporary || !begun_) return std::string(text);
    std::error_code none, finished;
    const std::uintmax_t left = fs::file_size(writing_ + ".partial", finished);
    const bool some = !writing_.empty() && !finished && left >= kLittle;
    const bool much = some || (shards_ && total_.samples > 0);
    if (fs::exists(partial, none) && much && resumable) {
      return fmt::format("{}; '{}' has what was packed: the same command with --resume goes on",
                         text, partial);
    }
    if (!output_.resume && shards_) shards_->discard();
    if (!output_.resume && !shards_) fs::remove(partial, none);
    return std::string(text);
  }

 private:
  FileWriter open(const std::string& path, std::int64_t first) {
    WriteOptions options{.mode = output_.resume   ? WriteMode::Resume
                                 : output_.append ? WriteMode::Append
                                                  : WriteMode::Create,
                         .threads = output_.threads,
                         .metadata = output_.metadata,
                         .seed = output_.seed + static_cast<std::uint64_t>(first),
                         .origin = origin_,
                         .checks = output_.checks};
    options.origin.first = static_cast<std::uint64_t>(first);
    if (shards_ && output_.append) options.mode = WriteMode::Create;
    try {
      return {path, arrays_, options};
    } catch (const Error& error) {
      refuse(error);
    }
  }

  // Names inputs that changed, if that may be the reason.
  [[noreturn]] void refuse(const Error& error) const {
    if (!output_.resume || error.code() != Errc::InvalidArgument || changed_.empty()) throw error;
    invalid("{}. Changed since: '{}'{}", error.what(), changed_.front(),
            changed_.size() > 1 ? fmt::format(" and {} more", changed_.size() - 1) : "");
  }

  void write_file(const std::string& path, std::int64_t first, std::int64_t end) {
    const std::optional<ReplacedShards> replaced =
        shards_ || output_.append ? std::nullopt
                                  : std::optional<ReplacedShards>(std::in_place, path);
    FileWriter writer = open(path, first);
    writing_ = path;
    begun_ = true;
    const std::int64_t kept = output_.resume ? writer.samples() : 0;
    std::int64_t at = first + kept;
    if (at <= end) compare(path + ".partial", kept, first);
    if (at > end) {
      invalid("[pack] '{}.partial' has {} samples, the inputs {}; pack without --resume", path,
              at - first, end - first);
    }
    bar_.add(static_cast<std::uint64_t>(at - first) * each_);
    while (at < end) {
      const std::int64_t count = std::min(4 * batch_samples(each_, output_.threads), end - at);
      writer.write(
          count, [&](std::size_t array, std::int64_t from, std::int64_t samples, std::byte* room) {
            InterruptGuard::check();  // chunks before this one are written
            return source_.fetch(array, at + from, samples, room);
          });
      at += count;
      bar_.add(static_cast<std::uint64_t>(count) * each_);
    }
    writer.finish();
    if (replaced) replaced->remove();
    for (std::size_t a = 0; a < arrays_.size(); ++a) total_.arrays[a].add(writer.written(a));
    measure(path, kept, first);
    total_.samples += writer.samples();
    total_.file_bytes += fs::file_size(path);
  }

  // Throws where the samples of a file are not those of the inputs, if that may be.
  void compare(const std::string& path, std::int64_t samples, std::int64_t first) const {
    if (!compare_ || samples == 0) return;
    ProgressBar bar("comparing", static_cast<std::uint64_t>(samples) * each_, output_.quiet);
    try {
      check_repacked(
          path, samples,
          [&](std::size_t array, std::int64_t from, std::int64_t count, std::byte* room) {
            return source_.fetch(array, first + from, count, room);
          },
          {.checks = output_.checks,
           .seed = output_.seed + static_cast<std::uint64_t>(first),
           .threads = output_.threads,
           .progress = [&](std::uint64_t bytes) { bar.add(bytes); }});
    } catch (const Error& error) {
      refuse(error);
    }
  }

  // Samples that the run which is resumed has packed.
  void measure(const std::string& path, std::int64_t kept, std::int64_t first) {
    measure_kept(path, kept, source_, first, output_.checks, output_.threads, total_.arrays);
  }

  void write_shards() {
    std::vector<ArrayInfo> settled = arrays_;
    check_arrays(settled);
    add_masks(settled);
    try {
      shards_.emplace(ShardRequest{
          .path = path_,
          .shards = output_.shards,
          .schema = {settled, output_.metadata.empty() ? "{}" : output_.metadata},
          .begun = begun_with({.seed = output_.seed, .origin = origin_, .checks = output_.checks}),
          .replace = output_.force,
          .append = output_.append,
          .resumable = !output_.append,
          .resume = output_.resume});
    } catch (const Error& error) {
      refuse(error);
    }
    begun_ = true;
    const std::span<const std::string> paths = shards_->paths();
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto count = static_cast<std::int64_t>(paths.size());
      const std::int64_t first = source_.samples() * static_cast<std::int64_t>(i) / count;
      const std::int64_t end = source_.samples() * static_cast<std::int64_t>(i + 1) / count;
      if (!fs::exists(paths[i])) {
        write_file(paths[i], first, end);
        continue;
      }
      // The run that is resumed has finished this file.
      compare(paths[i], end - first, first);
      const FileReader reader(paths[i]);
      for (std::size_t a = 0; a < arrays_.size(); ++a) {
        total_.arrays[a].packed_bytes += packed_bytes_of(reader, a);
      }
      measure(paths[i], end - first, first);
      total_.samples += end - first;
      total_.file_bytes += fs::file_size(paths[i]);
      bar_.add(static_cast<std::uint64_t>(end - first) * each_);
    }
    shards_->finish();
  }

  const PackOutput& output_;
  const Source& source_;
  const std::vector<ArrayInfo>& arrays_;
  std::string path_;
  std::uint64_t each_;
  ProgressBar bar_;
  Origin origin_;
  std::optional<ShardedOutput> shards_;
  PackTotal total_;
  std::vector<std::string> changed_;  // inputs, since the run that is resumed
  std::string writing_;               // the file, or one of the shards
  bool begun_ = false;
  bool compare_ = false;  // what a stopped run has packed with the inputs as they are now
};

}  // namespace

void check_output(const PackOutput& output, std::int64_t samples) {
  check_shards("[pack] --shards", output.shards, samples);
  if (output.resume || output.append || output.force || output.temporary) return;
  const std::string path = find_destination("pack", output.path).path;
  const Leftover left = find_leftover(path);
  if (left == Leftover::File || left == Leftover::Shards) {
    const OutFile lock(path + ".partial", OutFile::Open::Keep);  // Io where a writer is still at it
    invalid(
        "[pack] '{}.partial' is what a stopped run has packed; add --resume to go on with it, or "
        "--force to start over",
        path);
  }
}

PackTotal write_samples(const PackOutput& output, const Source& source,
                        const std::vector<ArrayInfo>& arrays) {
  PackRun run(output, source, arrays);
  try {
    return run.run();
  } catch (const Interrupted& stop) {
    throw Interrupted(stop.signal(), run.ended("[pack] stopped", true));
  } catch (const Error& error) {
    // A wrong argument must change, and a run with other arguments makes another file.
    const bool resumable = error.code() == Errc::Io || error.code() == Errc::CorruptData;
    fail(error.code(), "{}", run.ended(error.what(), resumable));
  }
}

}  // namespace tuckfold::cli
