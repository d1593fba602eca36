// FileWriter: samples are gathered until a chunk is full. Chunks are packed in parallel and written
// in the order of their last samples, so the bytes depend neither on threads nor on batches.
#include <algorithm>
#include <optional>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/io/destination.h"
#include "base/io/file.h"
#include "base/strided.h"
#include "container/chunk_packer.h"
#include "container/resume.h"

namespace tuckfold {
namespace {

constexpr std::uint64_t kSliceBytes = 64 << 20;  // of a batch, about, taken at a time

// Samples of a batch: in memory, or to be fetched.
struct Batch {
  std::span<const ConstTensorView> views{};
  const FileWriter::Fetch* fetch = nullptr;
  std::int64_t count = 0;
};

// A chunk to be packed: part of a batch, or samples gathered from several batches.
struct PendingChunk {
  std::uint32_t array;
  std::int64_t first, samples;
  std::int64_t in_batch;         // of its first sample
  ConstTensorView view;          // without data where samples were gathered or are to be fetched
  std::vector<std::byte> owned;  // that were gathered

  std::int64_t end() const { return first + samples; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(view.shape.elems()) * size_bytes(view.dtype);
  }
};

// Samples of an array that do not fill a chunk yet.
struct PartialChunk {
  std::vector<std::byte> bytes;
  std::int64_t first = 0, samples = 0;
};

}  // namespace

struct FileWriter::Impl {
  std::string path;
  WriteOptions options;
  std::optional<OutFile> out;
  Index index;                               // what is in the file by now
  std::uint64_t number_shift = 0;            // from samples to their numbers in records
  std::uint64_t old_end = 0;                 // when appending
  std::int64_t samples = 0;                  // that write() took
  std::vector<PartialChunk> partial_chunks;  // for each array
  std::optional<ChunkPacker> packer;
  std::vector<WrittenArray> written;  // for each array that is no mask
  std::vector<PendingChunk> pending;
  std::vector<PackBuffers> worker_buffers;  // one a thread
  std::vector<PackedChunk> packed;          // that wait for those in front of them
  enum class State : unsigned char { Open, Failed, Finished } state = State::Open;

  Impl(const std::string& where, const WriteOptions& how)
      : path(find_destination("write", where).path), options(how) {}
  // An append that was not finished is undone.
  ~Impl() {
    if (state != State::Finished && old_end > 0) out->try_truncate(old_end);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Without masks, which follow them in the schema.
  std::span<const ArrayInfo> arrays() const {
    return std::span(index.schema.arrays).first(count_shown(index.schema.arrays));
  }
  // How many gathered chunks to collect before packing, so that every thread has some.
  std::size_t most_pending() const {
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
      add_masks(wanted);
      index.schema = {std::move(wanted), options.metadata.empty() ? "{}" : options.metadata};
      open_new();
    }
    samples = static_cast<std::int64_t>(index.samples);
    number_shift = index.next_number - index.samples;
    partial_chunks.resize(arrays().size());
    for (PartialChunk& column : partial_chunks) column.first = samples;
    if (!options.checks.empty() && options.checks.size() != arrays().size()) {
      invalid("[write] checks must be given for each of {} arrays, got {}", arrays().size(),
              options.checks.size());
    }
    packer.emplace(index.schema.arrays, options.checks, options.seed);
    count_kept();
  }

  // Bytes of chunks that a stopped writer left.
  void count_kept() {
    written.resize(arrays().size());
    if (options.mode == WriteMode::Append) return;
    std::vector<std::uint64_t> bytes(index.schema.arrays.size());
    for (const Entry& entry : index.entries) {
      bytes[entry.array] += entry.payload_bytes - kChunkHeadBytes;
    }
    for (std::size_t i = 0; i < arrays().size(); ++i) {
      const std::optional<std::size_t> mask = packer->mask_of(i);
      written[i].packed_bytes = bytes[i] + (mask ? bytes[*mask] : 0);
    }
  }

  void open_new() {
    const Destination destination = find_destination("write", path);
    if (destination.stream) {
      fail(Errc::Io,
           "[write] '{}' is a pipe or a device, which cannot be a dataset; copy one to it", path);
    }
    check_not_input("write", destination);
    const std::string partial = path + ".partial";
    const bool resume = options.mode == WriteMode::Resume;
    const Begun begun = begun_with(options);
    out.emplace(partial, resume ? OutFile::Open::Create : OutFile::Open::Truncate);
    if (out->size() > 0) {
      Kept kept = find_kept(partial, index.schema, begun);
      out->truncate(kept.end);
      index.entries = std::move(kept.entries);
      index.samples = index.next_number = kept.samples;
    }
    if (out->size() > 0) return;
    std::vector<std::byte> start = file_start();
    put_begun(start, begun);
    out->write(start);
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
    if (!wanted.empty() && !std::ranges::equal(wanted, arrays())) {
      invalid("[append] '{}' has other arrays than were given. What differs is {}; leave it out",
              path, difference(index.schema, {wanted, index.schema.metadata}));
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
        fail(Errc::Unsupported, "[write] '{}' must be on the CPU; copy it there", array.name);
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

  // How many samples of a batch to take at a time, so that a batch may be a whole dataset: whole
  // chunks of every array if that many fit.
  std::int64_t slice() const {
    std::int64_t most = 1;
    std::uint64_t bytes = 1;
    for (const ArrayInfo& array : arrays()) {
      most = std::max(most, array.samples_per_chunk);
      bytes += array.sample_bytes();
    }
    const auto fit = static_cast<std::int64_t>(kSliceBytes / bytes);
    return std::max(most, fit / most * most);
  }

  void take_all(const Batch& batch) {
    for (std::int64_t at = 0; at < batch.count; at += slice()) {
      take(batch, at, std::min(slice(), batch.count - at));
    }
  }

  void take(const Batch& batch, std::int64_t at, std::int64_t count) {
    const std::size_t before = pending.size();
    for (std::uint32_t i = 0; i < arrays().size(); ++i) take_array(i, batch, at, at + count);
    std::sort(pending.begin() + static_cast<std::ptrdiff_t>(before), pending.end(),
              [](const PendingChunk& a, const PendingChunk& b) {
                return std::pair(a.end(), a.array) < std::pair(b.end(), b.array);
              });
    samples += count;
    std::uint64_t bytes = 0;
    bool borrowed = false;  // what the caller has may be gone after this
    for (const PendingChunk& chunk : pending) {
      bytes += chunk.owned.size();
      borrowed = borrowed || chunk.owned.empty();
    }
    if (borrowed || pending.size() >= most_pending() || bytes >= kSliceBytes) {
      pack_pending(batch.fetch);
    }
  }

  void take_array(std::uint32_t number, const Batch& batch, std::int64_t at, std::int64_t end) {
    const ArrayInfo& array = arrays()[number];
    const std::int64_t full = array.samples_per_chunk;
    const std::size_t bytes = array.sample_bytes();
    PartialChunk& column = partial_chunks[number];
    while (at < end) {
      if (column.samples == 0 && end - at >= full) {
        pending.push_back({.array = number,
                           .first = column.first,
                           .samples = full,
                           .in_batch = at,
                           .view = batch.fetch ? ConstTensorView(nullptr, array.dtype,
                                                                 with_samples(full, array.shape))
                                               : rows_of(batch.views[number], at, full),
                           .owned = {}});
        column.first += full;
        at += full;
        continue;
      }
      const std::int64_t taken = std::min(full - column.samples, end - at);
      const std::size_t had = column.bytes.size();
      column.bytes.resize(had + static_cast<std::size_t>(taken) * bytes);
      if (batch.fetch) {
        std::byte* to = column.bytes.data() + had;
        const std::byte* found = (*batch.fetch)(number, at, taken, to);
        if (found != to) std::copy_n(found, static_cast<std::size_t>(taken) * bytes, to);
      } else {
        const FlatReader reader(rows_of(batch.views[number], at, taken));
        reader.gather_bytes(0, reader.elems(), column.bytes.data() + had);
      }
      column.samples += taken;
      at += taken;
      if (column.samples == full) add_partial(number);
    }
  }

  void add_partial(std::uint32_t number) {
    PartialChunk& column = partial_chunks[number];
    if (column.samples == 0) return;
    const ArrayInfo& array = arrays()[number];
    pending.push_back({.array = number,
                       .first = column.first,
                       .samples = column.samples,
                       .in_batch = 0,
                       .view = {nullptr, array.dtype, with_samples(column.samples, array.shape)},
                       .owned = std::move(column.bytes)});
    column = {.bytes = {}, .first = column.first + column.samples, .samples = 0};
  }

  // The samples of a chunk, wherever they are.
  ConstTensorView samples_of(const PendingChunk& chunk, const Fetch* fetch,
                             ReusedBuffer& buffer) const {
    if (chunk.view.data != nullptr) return chunk.view;
    const std::byte* data = chunk.owned.data();
    if (fetch != nullptr && chunk.owned.empty()) {
      data = (*fetch)(chunk.array, chunk.in_batch, chunk.samples, buffer.of(chunk.bytes()).data());
    }
    return {data, chunk.view.dtype, chunk.view.shape};
  }

  void pack_chunk(const PendingChunk& chunk, const ConstTensorView& view, PackBuffers& room,
                  PackedChunk& out_chunk, int threads) const {
    try {
      packer->pack({.array = chunk.array,
                    .number = static_cast<std::uint64_t>(chunk.first) + number_shift,
                    .view = view},
                   room, out_chunk, threads);
    } catch (const Error& error) {
      fail(error.code(), "[write] '{}', samples {} to {}: {}", arrays()[chunk.array].name,
           chunk.first, chunk.end() - 1, error.what());
    }
  }

  void pack_pending(const Fetch* fetch) {
    std::size_t most = 0;
    for (const PendingChunk& chunk : pending) most = std::max(most, chunk.bytes());
    Lanes lanes = lanes_for(most, options.threads);
    if (pending.size() == 1) lanes = {1, options.threads, 1};
    worker_buffers.resize(static_cast<std::size_t>(lanes.workers));
    packed.resize(static_cast<std::size_t>(lanes.window));
    in_order(
        static_cast<std::int64_t>(pending.size()), lanes,
        [&](std::int64_t i, std::size_t slot, int worker) {
          const PendingChunk& chunk = pending[static_cast<std::size_t>(i)];
          PackBuffers& room = worker_buffers[static_cast<std::size_t>(worker)];
          pack_chunk(chunk, samples_of(chunk, fetch, room.samples), room, packed[slot],
                     lanes.threads_of_each);
        },
        [&](std::int64_t i, std::size_t slot) {
          write_chunk(pending[static_cast<std::size_t>(i)], packed[slot]);
        });
    pending.clear();
  }

  void write_chunk(const PendingChunk& chunk, const PackedChunk& done) {
    write_record(chunk, chunk.array, done.values.bytes);
    if (!done.mask.bytes.empty()) {
      const std::size_t mask = *packer->mask_of(chunk.array);
      write_record(chunk, static_cast<std::uint32_t>(mask), done.mask.bytes);
    }
    written[chunk.array].add(done.found);
  }

  void write_record(const PendingChunk& chunk, std::uint32_t array, std::span<std::byte> record) {
    put_record_head(record, RecordKind::Chunk, out->size());
    index.entries.push_back(
        {.array = array,
         .samples = static_cast<std::uint32_t>(chunk.samples),
         .first = static_cast<std::uint64_t>(chunk.first),
         .offset = out->size(),
         .payload_bytes = record.size() - kRecordHeadBytes,
         .skip = 0,
         .crc = packed_crc_of(record.subspan(kRecordHeadBytes + kChunkHeadBytes))});
    // The buffer reaches that far.
    const std::size_t padded = round_up(record.size(), kRecordAlign);
    std::fill(record.data() + record.size(), record.data() + padded, std::byte{0});
    out->write({record.data(), padded});
  }

  void finish() {
    for (std::uint32_t i = 0; i < arrays().size(); ++i) add_partial(i);
    pack_pending(nullptr);
    worker_buffers.clear();  // the index takes memory, too
    packed.clear();
    index.samples = static_cast<std::uint64_t>(samples);
    index.next_number = index.samples + number_shift;
    const bool append = options.mode == WriteMode::Append;
    if (append && !out->is_there()) {
      fail(Errc::Io, "[append] '{}' has been replaced since it was opened; append again", path);
    }
    const Ending ending = make_ending(index, out->size());
    out->write(ending.index);
    // A trailer must not be on the disk before the records that it refers to.
    if (options.sync) out->sync();
    if (!append) {
      constexpr std::byte kZeros[kBegunBytes] = {};
      out->overwrite(kBegunAt, kZeros);
    }
    out->write(ending.trailer);
    if (options.sync) out->sync();
    if (!append) out->rename_to(path, options.sync);
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
  impl_->guarded("write", [&] { impl_->take_all({.views = batch, .count = count}); });
}

void FileWriter::write(std::int64_t samples, const Fetch& fetch) {
  if (samples < 0) invalid("[write] samples must be 0 or more, got {}", samples);
  impl_->guarded("write", [&] { impl_->take_all({.fetch = &fetch, .count = samples}); });
}

const WrittenArray& FileWriter::written(std::size_t array) const {
  if (array >= impl_->written.size()) {
    invalid("[write] there are {} arrays, got number {}", impl_->written.size(), array);
  }
  return impl_->written[array];
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
