#include "capi/dataset_writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/io/destination.h"
#include "base/io/file.h"
#include "container/format.h"
#include "container/resume.h"
#include "container/sharded.h"
#include "container/shards.h"

namespace tuckfold::capi {
namespace {

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

// The arrays of a manifest, for more shards of the same.
Schema schema_at(const std::string& path) {
  Schema schema;
  list_shard(shards_at(path).front().path, &schema);
  return schema;
}

}  // namespace

struct DatasetWriter::Impl {
  DatasetRequest request;
  std::string path;  // links followed
  std::optional<ShardedOutput> sharded;
  std::optional<ReplacedShards> replaced;
  std::optional<FileWriter> file;      // of the current shard, or the only one
  std::size_t shard = 0;               // its number
  std::int64_t shard_end = 0;          // of its samples, of those that are written here
  std::int64_t taken = 0;              // samples that are written here, those of Resume included
  std::int64_t before = 0;             // samples of the manifest that is appended to
  std::vector<WrittenArray> finished;  // of shards that are finished
  std::vector<ArrayInfo> arrays;       // without masks
  enum class State : unsigned char { Open, Failed, Finished } state = State::Open;

  explicit Impl(DatasetRequest wanted)
      : request(std::move(wanted)), path(find_destination("write", request.path).path) {
    const bool append = mode() == WriteMode::Append;
    if (append && request.shards == 0 && !shards_at(path).empty()) request.shards = 1;
    if (!append) check_absent();
    request.shards > 0 ? open_shards() : open_file();
    finished.resize(arrays.size());
  }

  WriteMode mode() const { return request.options.mode; }

  void check_absent() const {
    if (!request.force && find_destination("write", request.path).exists) {
      const Leftover left = find_leftover(path);
      const bool complete = left == Leftover::None || left == Leftover::Useless;
      if (mode() == WriteMode::Resume && complete) {
        invalid("[resume] '{}' is complete; append to it, or pass force to write it anew",
                request.path);
      }
      invalid("[write] '{}' exists; pass force to replace it, or name another file", request.path);
    }
    if (mode() == WriteMode::Resume) return;
    const Leftover left = find_leftover(path);
    if (left == Leftover::None) return;
    if (!request.force && left != Leftover::Useless) {
      const OutFile lock(path + ".partial", OutFile::Open::Keep);  // Io if a writer is still at it
      invalid(
          "[write] '{}.partial' is what a stopped writer has packed; pass resume to go on with it, "
          "or force to start over",
          path);
    }
    remove_leftover(path);
  }

  void open_file() {
    if (mode() != WriteMode::Append) replaced.emplace(path);
    file.emplace(path, request.arrays, request.options);
    shard_end = std::numeric_limits<std::int64_t>::max();
    taken = file->samples();
    arrays = std::move(request.arrays);
    if (!arrays.empty()) return;
    Index index = read_index(MappedFile(path, "append").bytes(), path);
    index.schema.arrays.resize(count_shown(index.schema.arrays));
    arrays = std::move(index.schema.arrays);
  }

  void open_shards() {
    const bool append = mode() == WriteMode::Append;
    if (request.shards > 1 && request.samples == 0) {
      invalid(
          "[write] shards divide samples, and samples says that there are none; give their number, "
          "or leave out shards");
    }
    if (request.shards > 1) check_shards("[write] shards", request.shards, request.samples);
    if (append) take_arrays_of_manifest();
    std::vector<ArrayInfo> settled = request.arrays;
    check_arrays(settled);
    arrays = settled;
    add_masks(settled);
    const std::string& metadata = request.options.metadata;
    Schema schema{settled, metadata.empty() ? "{}" : metadata};
    if (append) {
      const Schema there = schema_at(path);
      if (const Schema now{settled, there.metadata}; schema_text(there) != schema_text(now)) {
        invalid("[append] '{}' has other arrays than were given. What differs is {}; leave it out",
                path, difference(there, now));
      }
      before = FileReader(path).samples();
    }
    sharded.emplace(ShardRequest{.path = path,
                                 .shards = request.shards,
                                 .schema = std::move(schema),
                                 .begun = begun_with(request.options),
                                 .replace = request.force,
                                 .append = append,
                                 .resumable = !append,
                                 .resume = mode() == WriteMode::Resume});
    open_shard(0);
  }

  void take_arrays_of_manifest() {
    if (shards_at(path).empty()) {
      invalid("[write] more shards are for a manifest, and '{}' is none; leave out shards", path);
    }
    std::vector<ArrayInfo> there = schema_at(path).arrays;
    there.resize(count_shown(there));
    if (request.arrays.empty()) request.arrays = there;
    for (std::size_t i = 0; i < std::min(there.size(), request.arrays.size()); ++i) {
      std::int64_t& chunk = request.arrays[i].samples_per_chunk;
      if (chunk == 0) chunk = there[i].samples_per_chunk;
    }
  }

  std::int64_t first_of(std::size_t number) const {
    return request.samples * static_cast<std::int64_t>(number) / request.shards;
  }

  // Opens a shard, or the one after those that the writer which is resumed has finished.
  void open_shard(std::size_t number) {
    const std::span<const std::string> paths = sharded->paths();
    for (shard = number; shard < paths.size() && exists(paths[shard]); ++shard) {
      taken += FileReader(paths[shard]).samples();
    }
    if (shard == paths.size()) return;
    const std::int64_t first = first_of(shard);
    WriteOptions options = request.options;
    if (options.mode == WriteMode::Append) options.mode = WriteMode::Create;
    options.seed += static_cast<std::uint64_t>(first);
    options.origin.first = static_cast<std::uint64_t>(first);
    file.emplace(paths[shard], arrays, options);
    taken += file->samples();
    shard_end =
        request.samples == 0 ? std::numeric_limits<std::int64_t>::max() : first_of(shard + 1);
  }

  void end_shard() {
    file->finish();
    for (std::size_t i = 0; i < arrays.size(); ++i) finished[i].add(file->written(i));
    file.reset();
    open_shard(shard + 1);
  }

  void write(std::span<const ConstTensorView> batch) {
    if (!sharded) {
      file->write(batch);
      taken = file->samples();
      return;
    }
    const std::int64_t count = batch.empty() || batch[0].shape.rank() == 0 ? 0 : batch[0].shape[0];
    if (request.samples > 0 && count > request.samples - taken) {
      invalid("[write] {} samples were announced, got {}", request.samples, taken + count);
    }
    // Batches that fit are passed on as they are: the writer of the shard checks them.
    for (const ConstTensorView& view : batch) {
      if (view.shape.rank() == 0 || view.shape[0] != count || view.strides.rank() == 0) {
        return file_to_check_with().write(batch);
      }
    }
    std::vector<ConstTensorView> part(batch.begin(), batch.end());
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t rows = std::min(count - at, shard_end - taken);
      for (std::size_t i = 0; i < batch.size(); ++i) part[i] = rows_of(batch[i], at, rows);
      file->write(part);
      at += rows;
      taken += rows;
      if (taken == shard_end) end_shard();
    }
  }

  // A batch of wrong tensors is refused by the writer of a file in its own words.
  FileWriter& file_to_check_with() {
    if (!file) invalid("[write] all {} samples are written", taken);
    return *file;
  }

  void finish() {
    if (!sharded) {
      file->finish();
      for (std::size_t i = 0; i < arrays.size(); ++i) finished[i].add(file->written(i));
      if (replaced) replaced->remove();
    } else {
      if (request.samples > 0 && taken != request.samples) {
        invalid("[write] {} samples were announced, got {}", request.samples, taken);
      }
      if (file) end_shard();
      sharded->finish();
    }
    file.reset();
  }

  template <class Step>
  void guarded(const char* verb, State after, Step&& step) {
    if (state == State::Finished) invalid("[{}] '{}' is finished; append to it", verb, path);
    if (state == State::Failed) {
      invalid("[{}] writing '{}' has failed before; open it again", verb, path);
    }
    const std::int64_t taken_before = taken;
    state = State::Failed;
    try {
      step();
    } catch (const Error& error) {
      // A call that changed nothing may be made again with other arguments.
      if (error.code() == Errc::InvalidArgument && taken == taken_before) state = State::Open;
      throw;
    }
    state = after;
  }
};

DatasetWriter::DatasetWriter(DatasetRequest request)
    : impl_(std::make_unique<Impl>(std::move(request))) {}
DatasetWriter::~DatasetWriter() = default;

std::span<const ArrayInfo> DatasetWriter::arrays() const { return impl_->arrays; }
std::int64_t DatasetWriter::samples() const { return impl_->before + impl_->taken; }

void DatasetWriter::write(std::span<const ConstTensorView> batch) {
  impl_->guarded("write", Impl::State::Open, [&] { impl_->write(batch); });
}

void DatasetWriter::finish() {
  impl_->guarded("finish", Impl::State::Finished, [&] { impl_->finish(); });
}

void DatasetWriter::discard() noexcept {
  if (impl_->state == Impl::State::Finished) return;
  impl_->state = Impl::State::Failed;
  impl_->file.reset();
  if (impl_->sharded) return impl_->sharded->discard();
  if (impl_->mode() == WriteMode::Append) return;
  try {
    remove_leftover(impl_->path);
  } catch (const std::exception&) {  // another writer has taken it: it stays
  }
}

WrittenArray DatasetWriter::written(std::size_t array) const {
  WrittenArray all = impl_->finished.at(array);
  if (impl_->file) all.add(impl_->file->written(array));
  return all;
}

}  // namespace tuckfold::capi
