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
struct Part {
  std::string path;
  std::int64_t first = 0, end = 0;
};

// Shards lie beside the manifest: NAME-00000-of-0000N.tuck for NAME.tuck.
std::vector<Part> parts_of(const PackOutput& output, std::int64_t samples) {
  if (output.shards == 0) return {{.path = output.path, .first = 0, .end = samples}};
  std::string name = output.path;
  if (name.ends_with(".tuck")) name.resize(name.size() - 5);
  std::vector<Part> parts;
  for (int i = 0; i < output.shards; ++i) {
    parts.push_back({.path = shard_name(name, i, output.shards),
                     .first = samples * i / output.shards,
                     .end = samples * (i + 1) / output.shards});
  }
  return parts;
}

std::uint64_t bytes_of(const std::vector<ArrayInfo>& arrays) {
  std::uint64_t bytes = 0;
  for (const ArrayInfo& array : arrays) bytes += sample_bytes(array);
  return bytes;
}

// Returns the samples that the file then has.
std::int64_t write_part(const PackOutput& output, const Source& source,
                        const std::vector<ArrayInfo>& arrays, const Part& part, Meter& meter) {
  FileWriter writer(part.path, arrays,
                    {.mode = output.resume   ? WriteMode::Resume
                             : output.append ? WriteMode::Append
                                             : WriteMode::Create,
                     .threads = output.threads,
                     .metadata = output.metadata,
                     .seed = output.seed + static_cast<std::uint64_t>(part.first)});
  const std::uint64_t each = bytes_of(arrays);
  std::int64_t at = part.first + (output.resume ? writer.samples() : 0);
  if (at > part.end) {
    invalid("[pack] '{}.partial' has {} samples, the inputs {}; pack without --resume", part.path,
            at - part.first, part.end - part.first);
  }
  meter.add(static_cast<std::uint64_t>(at - part.first) * each);
  while (at < part.end) {
    const std::int64_t count = std::min(4 * batch_samples(each, output.threads), part.end - at);
    writer.write(count,
                 [&](std::size_t array, std::int64_t first, std::int64_t samples, std::byte* room) {
                   return source.fetch(array, at + first, samples, room);
                 });
    at += count;
    meter.add(static_cast<std::uint64_t>(count) * each);
  }
  writer.finish();
  return writer.samples();
}

// What a stopped run of the same has finished already.
bool is_whole(const Part& part) {
  return fs::exists(part.path) && FileReader(part.path).samples() == part.end - part.first;
}

PackTotal write_parts(const PackOutput& output, const Source& source,
                      const std::vector<ArrayInfo>& arrays) {
  const std::uint64_t each = bytes_of(arrays);
  Meter meter("packing", static_cast<std::uint64_t>(source.samples()) * each, output.quiet);
  PackTotal total;
  std::vector<std::string> shards;
  for (const Part& part : parts_of(output, source.samples())) {
    if (output.shards > 0 && output.resume && is_whole(part)) {
      total.samples += part.end - part.first;
      meter.add(static_cast<std::uint64_t>(part.end - part.first) * each);
    } else {
      total.samples += write_part(output, source, arrays, part, meter);
    }
    total.file_bytes += fs::file_size(part.path);
    shards.push_back(part.path);
  }
  if (output.shards > 0) write_manifest(output.path, shards);
  total.bytes = static_cast<std::uint64_t>(total.samples) * each;
  total.seconds = meter.seconds();
  return total;
}

// Whether another writer is at it.
bool is_locked(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::vector<std::string> partials_of(const PackOutput& output, std::int64_t samples) {
  std::vector<std::string> found;
  for (const Part& part : parts_of(output, samples)) {
    std::error_code unreadable;
    if (fs::exists(part.path + ".partial", unreadable)) found.push_back(part.path + ".partial");
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
  for (const Part& part : parts_of(output, samples)) check_absent("pack", part.path, force);
}

PackTotal write_samples(const PackOutput& output, const Source& source,
                        const std::vector<ArrayInfo>& arrays) {
  const std::vector<std::string> before = partials_of(output, source.samples());
  const auto told = [&](std::string_view text, bool resumable) {
    return ended_early(output, source.samples(), before, text, resumable);
  };
  try {
    return write_parts(output, source, arrays);
  } catch (const Interrupted& stop) {
    throw Interrupted(stop.signal(), told("[pack] stopped", true));
  } catch (const Error& error) {
    // Where an argument is wrong, other ones are needed, and those make another file.
    const bool resumable = error.code() == Errc::Io || error.code() == Errc::CorruptData;
    fail(error.code(), "{}", told(error.what(), resumable));
  }
}

}  // namespace tuckfold::cli
