// FileWriter: samples are gathered until a chunk is full; chunks are packed side by side and
// written in the order in which their last samples came, so that bytes depend neither on threads
// nor on batches.
#include <algorithm>
#include <exception>
#include <optional>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "container/file.h"
#include "container/open.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kSlice = 4096;            // samples of a batch taken at a time
constexpr std::uint64_t kGroupBytes = 64 << 20;  // of samples that are packed side by side
constexpr std::uint64_t kLargeChunk = 16 << 20;  // packed by all threads together

ConstTensorView rows_of(const ConstTensorView& view, std::int64_t first, std::int64_t count) {
  ConstTensorView rows = view;
  const std::int64_t step = view.strides[0] * static_cast<std::int64_t>(size_bytes(view.dtype));
  rows.data = static_cast<const std::byte*>(view.data) + first * step;
  rows.shape[0] = count;
  return rows;
}

// A chunk to be packed: of the caller's batch, or of samples gathered from several.
struct Job {
  std::uint32_t array;
  std::int64_t first, samples;
  ConstTensorView view;
  std::unique_ptr<std::vector<std::byte>> owned;  // where the view leads if it is not borrowed
  bool borrowed;
  std::vector<std::byte> record;  // packed, but for the record's head
  std::exception_ptr error;

  std::int64_t end() const { return first + samples; }
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(view.shape.elems()) * size_bytes(view.dtype);
  }
};

// Samples of an array that do not fill a chunk yet.
struct Gathered {
  std::vector<std::byte> bytes;
  std::int64_t first = 0, samples = 0;
};

}  // namespace

struct FileWriter::Impl {
  std::string path;
  WriteOptions options;
  std::optional<OutFile> out;
  Index index;                     // what is in the file by now
  std::uint64_t number_shift = 0;  // from samples to their numbers in records
  std::uint64_t old_end = 0;       // when appending
  std::int64_t samples = 0;        // that write() took
  std::vector<Gathered> gathered;  // for each array
  std::vector<Job> jobs;
  enum class State : unsigned char { Open, Failed, Finished } state = State::Open;

  Impl(const std::string& where, const WriteOptions& how) : path(where), options(how) {}
  // An append that was not finished is undone.
  ~Impl() {
    if (state != State::Finished && old_end > 0) out->try_truncate(old_end);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::vector<ArrayInfo>& arrays() const { return index.schema.arrays; }
  // That are packed side by side.
  std::size_t most_jobs() const {
    return std::size_t{4} * static_cast<std::size_t>(options.threads);
  }

  void open(std::vector<ArrayInfo> wanted) {
    if (options.threads < 0) invalid("[write] threads must be 0 or more, got {}", options.threads);
    options.threads = thread_count(options.threads);
    if (!options.metadata.empty()) check_metadata(options.metadata);
    if (options.mode == WriteMode::Append) {
      open_to_append(std::move(wanted));
    } else {
      check_arrays(wanted);
      index.schema = {std::move(wanted), options.metadata.empty() ? "{}" : options.metadata};
      open_new();
    }
    samples = static_cast<std::int64_t>(index.samples);
    number_shift = index.next_number - index.samples;
    gathered.resize(arrays().size());
    for (Gathered& column : gathered) column.first = samples;
  }

  void open_new() {
    const std::string partial = path + ".partial";
    const bool resume = options.mode == WriteMode::Resume && file_exists(partial);
    out.emplace(partial, resume ? OutFile::Open::Keep : OutFile::Open::Truncate);
    if (resume) {
      const Kept kept = find_kept(partial, index.schema);
      out->truncate(kept.end);
      index.entries = kept.entries;
      index.samples = index.next_number = kept.samples;
    }
    if (out->size() > 0) return;
    out->write(file_start());
    const std::string text = schema_text(index.schema);
    out->write(make_record(RecordKind::Schema, std::as_bytes(std::span(text)), out->size()));
  }

  void open_to_append(std::vector<ArrayInfo> wanted) {
    out.emplace(path, OutFile::Open::Keep);
    index = read_index(MappedFile(path, "append").bytes(), path);
    for (std::size_t i = 0; i < wanted.size() && i < arrays().size(); ++i) {
      if (wanted[i].samples_per_chunk == 0) {
        wanted[i].samples_per_chunk = arrays()[i].samples_per_chunk;
      }
    }
    if (!wanted.empty() && wanted != arrays()) {
      invalid("[append] '{}' has other arrays than were given; leave them out to take those it has",
              path);
    }
    if (!options.metadata.empty()) index.schema.metadata = options.metadata;
    old_end = index.end;
    if (out->size() > old_end) out->truncate(old_end);
  }

  std::int64_t check_batch(std::span<const ConstTensorView> batch) const {
    if (batch.size() != arrays().size()) {
      invalid("[write] a batch needs a tensor for each of {} arrays, got {}", arrays().size(),
              batch.size());
    }
    const std::int64_t count = batch[0].shape.rank() == 0 ? 0 : batch[0].shape[0];
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const ConstTensorView& view = batch[i];
      const ArrayInfo& array = arrays()[i];
      if (view.device != Device::Cpu) {
        fail(Errc::Unsupported, "[write] '{}' must lie on the CPU; copy it there", array.name);
      }
      if (view.dtype != array.dtype || view.shape != with_samples(count, array.shape)) {
        invalid("[write] '{}' takes {} {} for {} samples, got {} {}", array.name,
                to_string(array.dtype), to_string(with_samples(count, array.shape)), count,
                to_string(view.dtype), to_string(view.shape));
      }
      if (view.strides.rank() != view.shape.rank() ||
          (view.data == nullptr && view.shape.elems() > 0)) {
        invalid("[write] '{}' has no data, or strides of another rank", array.name);
      }
    }
    return count;
  }

  // Samples of a batch that are taken at a time, so that a batch may be a whole dataset.
  std::int64_t slice() const {
    std::int64_t most = 1;
    for (const ArrayInfo& array : arrays()) most = std::max(most, array.samples_per_chunk);
    return std::max(most, kSlice / most * most);
  }

  void take_all(std::span<const ConstTensorView> batch, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += slice()) {
      const std::int64_t taken = std::min(slice(), count - at);
      std::vector<ConstTensorView> part;
      for (const ConstTensorView& view : batch) part.push_back(rows_of(view, at, taken));
      take(part, taken);
    }
  }

  void take(std::span<const ConstTensorView> batch, std::int64_t count) {
    const std::size_t before = jobs.size();
    for (std::uint32_t i = 0; i < arrays().size(); ++i) take_array(i, batch[i], count);
    std::sort(jobs.begin() + static_cast<std::ptrdiff_t>(before), jobs.end(),
              [](const Job& a, const Job& b) {
                return std::pair(a.end(), a.array) < std::pair(b.end(), b.array);
              });
    samples += count;
    const bool borrowed =
        std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.borrowed; });
    std::uint64_t bytes = 0;
    for (const Job& job : jobs) bytes += job.bytes();
    if (borrowed || jobs.size() >= most_jobs() || bytes >= kGroupBytes) pack_jobs();
  }

  void take_array(std::uint32_t number, const ConstTensorView& batch, std::int64_t count) {
    const ArrayInfo& array = arrays()[number];
    const std::int64_t full = array.samples_per_chunk;
    const auto bytes = static_cast<std::size_t>(sample_bytes(array));
    Gathered& column = gathered[number];
    for (std::int64_t at = 0; at < count;) {
      if (column.samples == 0 && count - at >= full) {
        jobs.push_back({number, column.first, full, rows_of(batch, at, full), {}, true, {}, {}});
        column.first += full;
        at += full;
        continue;
      }
      const std::int64_t taken = std::min(full - column.samples, count - at);
      const std::size_t had = column.bytes.size();
      column.bytes.resize(had + static_cast<std::size_t>(taken) * bytes);
      const FlatReader reader(rows_of(batch, at, taken));
      reader.gather_bytes(0, reader.elems(), column.bytes.data() + had);
      column.samples += taken;
      at += taken;
      if (column.samples == full) add_gathered(number);
    }
  }

  void add_gathered(std::uint32_t number) {
    Gathered& column = gathered[number];
    if (column.samples == 0) return;
    const ArrayInfo& array = arrays()[number];
    auto bytes = std::make_unique<std::vector<std::byte>>(std::move(column.bytes));
    const ConstTensorView view(bytes->data(), array.dtype,
                               with_samples(column.samples, array.shape));
    jobs.push_back({number, column.first, column.samples, view, std::move(bytes), false, {}, {}});
    column = {.bytes = {}, .first = column.first + column.samples, .samples = 0};
  }

  // Few samples at the end of a file may be too few for a codec: they are stored as they are.
  CodecSpec spec_for(const Job& job) const {
    const ArrayInfo& array = arrays()[job.array];
    if (job.samples == array.samples_per_chunk) return array.codec;
    try {
      layout(array.codec, array.dtype, job.view.shape);
      return array.codec;
    } catch (const Error& error) {
      if (error.code() != Errc::InvalidArgument) throw;
      return CodecSpec::parse("raw");
    }
  }

  void pack_job(Job& job, int threads) const {
    const ArrayInfo& array = arrays()[job.array];
    const CodecSpec spec = spec_for(job);
    const std::uint64_t number = static_cast<std::uint64_t>(job.first) + number_shift;
    constexpr std::size_t kHeads = kRecordHeadBytes + kChunkHeadBytes;
    job.record.resize(kHeads + frame_bytes(spec, array.dtype, job.view.shape));
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // numbers far apart for chunks side by side
    const std::size_t bytes =
        write_frame(spec, job.view, std::span(job.record).subspan(kHeads),
                    {.threads = threads, .seed = options.seed + number * kOdd + job.array});
    if (passes_ratio(array.dtype, job.view.shape, bytes)) {
      invalid(
          "[write] samples pack to less than a {}th of their bytes; choose a smaller "
          "samples_per_chunk than {}",
          kMaxRatio, array.samples_per_chunk);
    }
    job.record.resize(kHeads + bytes);
    put_chunk_head(
        job.record.data() + kRecordHeadBytes,
        {.array = job.array, .samples = static_cast<std::uint32_t>(job.samples), .number = number});
  }

  void pack_jobs() {
    for (std::size_t begin = 0; begin < jobs.size();) {
      std::size_t end = begin;
      std::uint64_t bytes = 0;
      while (end < jobs.size() && end - begin < most_jobs() &&
             (end == begin || bytes < kGroupBytes)) {
        bytes += jobs[end++].bytes();
      }
      const std::span<Job> group = std::span(jobs).subspan(begin, end - begin);
      const bool large = group.size() == 1 || bytes / group.size() > kLargeChunk;
      const auto count = static_cast<std::int64_t>(group.size());
      auto pack_range = [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t i = from; i < to; ++i) {
          Job& job = group[static_cast<std::size_t>(i)];
          try {
            pack_job(job, large ? options.threads : 1);
          } catch (...) {
            job.error = std::current_exception();
          }
        }
      };
      if (large) {
        pack_range(0, count);
      } else {
        parallel_for(count, options.threads, pack_range);
      }
      for (Job& job : group) write_job(job);
      begin = end;
    }
    jobs.clear();
  }

  void write_job(Job& job) {
    if (job.error) {
      try {
        std::rethrow_exception(job.error);
      } catch (const Error& error) {
        fail(error.code(), "[write] '{}', samples {} to {}: {}", arrays()[job.array].name,
             job.first, job.end() - 1, error.what());
      }
    }
    put_record_head(job.record, RecordKind::Chunk, out->size());
    index.entries.push_back({.array = job.array,
                             .samples = static_cast<std::uint32_t>(job.samples),
                             .first = static_cast<std::uint64_t>(job.first),
                             .offset = out->size(),
                             .payload_bytes = job.record.size() - kRecordHeadBytes,
                             .skip = 0});
    job.record.resize(round_up(job.record.size(), kRecordAlign));
    out->write(job.record);
    job.record = {};
    job.owned = nullptr;
  }

  void finish() {
    for (std::uint32_t i = 0; i < arrays().size(); ++i) add_gathered(i);
    pack_jobs();
    index.samples = static_cast<std::uint64_t>(samples);
    index.next_number = index.samples + number_shift;
    const Ending ending = make_ending(index, out->size());
    out->write(ending.index);
    // A trailer must never be on the disk before what it speaks of.
    if (options.sync) out->sync();
    out->write(ending.trailer);
    if (options.sync) out->sync();
    if (options.mode != WriteMode::Append) out->rename_to(path, options.sync);
    out.reset();  // another writer may append
  }

  // Runs a step, after which nothing more can be written if it fails.
  template <class Step>
  void guarded(const char* verb, Step&& step) {
    if (state == State::Finished) invalid("[{}] '{}' is finished; append to it", verb, path);
    if (state == State::Failed) {
      invalid("[{}] writing '{}' has failed before; open it again", verb, path);
    }
    state = State::Failed;
    step();
    state = State::Open;
  }
};

FileWriter::FileWriter(const std::string& path, std::vector<ArrayInfo> arrays,
                       const WriteOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {
  impl_->open(std::move(arrays));
}

FileWriter::~FileWriter() = default;
FileWriter::FileWriter(FileWriter&&) noexcept = default;
FileWriter& FileWriter::operator=(FileWriter&&) noexcept = default;

std::int64_t FileWriter::samples() const { return impl_->samples; }

void FileWriter::write(std::span<const ConstTensorView> batch) {
  const std::int64_t count = impl_->check_batch(batch);
  impl_->guarded("write", [&] { impl_->take_all(batch, count); });
}

void FileWriter::set_metadata(const std::string& json) {
  check_metadata(json);
  impl_->index.schema.metadata = json;
}

void FileWriter::finish() {
  impl_->guarded("finish", [&] { impl_->finish(); });
  impl_->state = Impl::State::Finished;
}

}  // namespace tuckfold
