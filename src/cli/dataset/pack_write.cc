#include "cli/dataset/pack_write.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/fail.h"
#include "base/io/temporary.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress_bar.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

// Samples of one file: all, or those of a shard.
struct OutputFile {
  std::string path;
  std::int64_t first = 0, end = 0;
};

// Shards lie beside the manifest: NAME-00000-of-0000N.tuck for NAME.tuck.
std::vector<OutputFile> output_files_of(const PackOutput& output, std::int64_t samples) {
  if (output.shards == 0) return {{.path = output.path, .first = 0, .end = samples}};
  std::string name = output.path;
  if (name.ends_with(".tuck")) name.resize(name.size() - 5);
  std::vector<OutputFile> files;
  for (int i = 0; i < output.shards; ++i) {
    files.push_back({.path = shard_name(name, i, output.shards),
                     .first = samples * i / output.shards,
                     .end = samples * (i + 1) / output.shards});
  }
  return files;
}

std::uint64_t bytes_of(const std::vector<ArrayInfo>& arrays) {
  std::uint64_t bytes = 0;
  for (const ArrayInfo& array : arrays) bytes += array.sample_bytes();
  return bytes;
}

// Returns the samples that the file then has.
std::int64_t write_file(const PackOutput& output, const Source& source,
                        const std::vector<ArrayInfo>& arrays, const OutputFile& file,
                        ProgressBar& bar) {
  FileWriter writer(file.path, arrays,
                    {.mode = output.resume   ? WriteMode::Resume
                             : output.append ? WriteMode::Append
                                             : WriteMode::Create,
                     .threads = output.threads,
                     .metadata = output.metadata,
                     .seed = output.seed + static_cast<std::uint64_t>(file.first)});
  const std::uint64_t each = bytes_of(arrays);
  std::int64_t at = file.first + (output.resume ? writer.samples() : 0);
  if (at > file.end) {
    invalid("[pack] '{}.partial' has {} samples, the inputs {}; pack without --resume", file.path,
            at - file.first, file.end - file.first);
  }
  bar.add(static_cast<std::uint64_t>(at - file.first) * each);
  while (at < file.end) {
    const std::int64_t count = std::min(4 * batch_samples(each, output.threads), file.end - at);
    writer.write(count,
                 [&](std::size_t array, std::int64_t first, std::int64_t samples, std::byte* room) {
                   return source.fetch(array, at + first, samples, room);
                 });
    at += count;
    bar.add(static_cast<std::uint64_t>(count) * each);
  }
  writer.finish();
  return writer.samples();
}

// What a stopped run of the same has finished already.
bool is_whole(const OutputFile& file) {
  return fs::exists(file.path) && FileReader(file.path).samples() == file.end - file.first;
}

PackTotal write_files(const PackOutput& output, const Source& source,
                      const std::vector<ArrayInfo>& arrays) {
  const std::uint64_t each = bytes_of(arrays);
  ProgressBar bar("packing", static_cast<std::uint64_t>(source.samples()) * each, output.quiet);
  PackTotal total;
  std::vector<std::string> shards;
  for (const OutputFile& file : output_files_of(output, source.samples())) {
    if (output.shards > 0 && output.resume && is_whole(file)) {
      total.samples += file.end - file.first;
      bar.add(static_cast<std::uint64_t>(file.end - file.first) * each);
    } else {
      total.samples += write_file(output, source, arrays, file, bar);
    }
    total.file_bytes += fs::file_size(file.path);
    shards.push_back(file.path);
  }
  if (output.shards > 0) write_manifest(output.path, shards);
  total.bytes = static_cast<std::uint64_t>(total.samples) * each;
  total.seconds = bar.seconds();
  return total;
}

// Whether another writer is at it.
bool is_locked(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::vector<std::string> partials_of(const PackOutput& output, std::int64_t samples) {
  std::vector<std::string> found;
  for (const OutputFile& file : output_files_of(output, samples)) {
    std::error_code unreadable;
    if (fs::exists(file.path + ".partial", unreadable)) found.push_back(file.path + ".partial");
  }
  return found;
}

// The message of what ended the work early, with how to go on.
std::string ended_early(const PackOutput& output, std::int64_t samples,
                        const std::vector<std::string>& were_there, std::string_view text,
                        bool resumable) {
  constexpr std::uintmax_t kLittle = 4096;  // a start and a schema, hardly a chunk
  if (output.append || output.temporary) return std::string(text);
  for (const std::string& partial : partials_of(output, samples)) {
    std::error_code none;
    const std::uintmax_t bytes = fs::file_size(partial, none);
    if (none || is_locked(partial)) continue;
    if (resumable && bytes >= kLittle) {
      return fmt::format("{}; '{}' has what was packed: the same command with --resume goes on",
                         text, partial);
    }
    // What an earlier run has left is not ours to remove.
    if (std::ranges::count(were_there, partial) == 0) fs::remove(partial, none);
  }
  return std::string(text);
}

}  // namespace

void check_shards(const PackOutput& output, std::int64_t samples, bool force) {
  if (output.shards == 0) return;
  if (output.shards > samples) {
    invalid("[pack] --shards must be 1..{}, the number of samples, got {}", samples, output.shards);
  }
  if (output.resume) return;
  for (const OutputFile& file : output_files_of(output, samples))
    check_absent("pack", file.path, force);
}

PackTotal write_samples(const PackOutput& output, const Source& source,
                        const std::vector<ArrayInfo>& arrays) {
  const std::vector<std::string> before = partials_of(output, source.samples());
  const auto told = [&](std::string_view text, bool resumable) {
    return ended_early(output, source.samples(), before, text, resumable);
  };
  try {
    return write_files(output, source, arrays);
  } catch (const Interrupted& stop) {
    throw Interrupted(stop.signal(), told("[pack] stopped", true));
  } catch (const Error& error) {
    // Where an argument is wrong, other ones are needed, and those make another file.
    const bool resumable = error.code() == Errc::Io || error.code() == Errc::CorruptData;
    fail(error.code(), "{}", told(error.what(), resumable));
  }
}

}  // namespace tuckfold::cli
