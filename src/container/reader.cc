// FileReader: chunks are found by their first samples, checked on first use, and unpacked in
// parallel to their places in the output.
#include <algorithm>
#include <exception>
#include <mutex>

#include "base/fail.h"
#include "base/overlap.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/registry.h"
#include "container/frame.h"
#include "container/reader_impl.h"
#include "container/rewrite.h"
#include "container/trailing_data.h"

namespace tuckfold {
namespace {

const CodecSpec& raw_spec() {
  static const CodecSpec raw = CodecSpec::parse("raw");
  return raw;
}

}  // namespace

std::size_t Column::chunk_of(std::int64_t sample) const noexcept {
  const auto guess = static_cast<std::size_t>(sample / chunks.front().samples);
  if (guess < chunks.size() && chunks[guess].first <= sample &&
      sample - chunks[guess].first < chunks[guess].samples) {
    return guess;
  }
  const auto after = std::ranges::upper_bound(chunks, sample, {}, &ChunkInfo::first);
  return static_cast<std::size_t>(after - chunks.begin()) - 1;
}

// ---- opening ------------------------------------------------------------------------------------

void ReaderState::add_schema(Schema schema, const std::string& path) {
  if (!schemas.empty() && schemas.back()->arrays == schema.arrays) {
    return schemas.push_back(schemas.back());
  }
  schemas.push_back(std::make_shared<const Schema>(std::move(schema)));
  check_same_arrays(this->schema(), *schemas.back(), path);
}

void ReaderState::add_file(const std::shared_ptr<const MappedFile>& file, Index index) {
  const auto number = static_cast<std::uint32_t>(schemas.size());
  add_schema(std::move(index.schema), file->path());
  columns.resize(schema().arrays.size());
  if (number == 0) {  // mostly the only one, and its arrays have about as many chunks
    for (Column& column : columns) {
      column.chunks.reserve(index.entries.size() / columns.size());
      column.places.reserve(index.entries.size() / columns.size());
    }
  }
  for (const Entry& entry : index.entries) {
    Column& column = columns[entry.array];
    column.chunks.push_back({.first = samples + static_cast<std::int64_t>(entry.first),
                             .samples = entry.samples,
                             .skip = entry.skip,
                             .frame_bytes = entry.payload_bytes - kChunkHeadBytes,
                             .file = number,
                             .offset = entry.offset});
    column.places.push_back({.shard = number, .crc = entry.crc, .offset = entry.offset});
  }
  samples += static_cast<std::int64_t>(index.samples);
  file_bytes += file->bytes().size();
  if (const std::uint64_t bytes = file->bytes().size() - index.end; bytes > 0) {
    const bool is_grown = has_later_state(file->bytes(), index.end);
    trailing.push_back({.path = file->path(),
                        .bytes = bytes,
                        .trailer_broken = !is_grown && has_broken_trailer(file->bytes(), index.end),
                        .not_listed = is_grown});
  }
  // No checksum of checksums, which is the same for any two that are equal.
  checksum = (checksum ^ index.crc) * 0x9e3779b97f4a7c15;
  checksum ^= checksum >> 32;
  file->drop_pages();
  files.add(file, index.end, index.crc);
}

void ReaderState::prepare_columns() {
  const std::vector<ArrayInfo>& arrays = schema().arrays;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    Column& column = columns[i];
    column.seen = std::make_unique<std::atomic<std::uint64_t>[]>(column.chunks.size());
    column.rows_alone = true;
    const Schema* last = nullptr;  // mostly one for all
    for (const std::shared_ptr<const Schema>& some : schemas) {
      if (some.get() == last) continue;
      last = some.get();
      column.rows_alone = column.rows_alone &&
                          rows_independent(last->arrays[i].codec, with_samples(2, arrays[i].shape));
    }
    const auto most = static_cast<std::int64_t>(kKeptBytes / arrays[i].sample_bytes());
    if (!column.rows_alone && samples <= most) {
      column.kept = std::make_unique<const KeptChunks>(column.chunks.size());
    }
  }
}

void ReaderState::open(const std::shared_ptr<const MappedFile>& file, const ReadOptions& options) {
  if (is_manifest(file->bytes())) {
    for (const ManifestShard& shard : read_manifest(file->bytes(), file->path())) {
      const auto part = std::make_shared<const MappedFile>(shard.path);
      add_file(part, read_shard_index(part->bytes(), shard, file->path()));
    }
  } else {
    add_file(file, read_index(file->bytes(), file->path()));
  }
  const std::vector<ArrayInfo>& arrays = schema().arrays;
  for (std::size_t i = 0; i < count_shown(arrays); ++i) {
    fill.emplace_back(arrays[i].dtype, arrays[i].fill);
    masks.push_back(find_mask(arrays, i));
  }
  prepare_columns();
  if (options.strict && !trailing.empty()) {
    fail(Errc::CorruptData, "[open] {}", to_string(trailing.front()));
  }
}

// ---- checks of arguments ------------------------------------------------------------------------

const ArrayInfo& ReaderState::array(const char* verb, std::size_t number) const {
  if (number >= columns.size()) {
    invalid("[{}] there are {} arrays, got number {}", verb, columns.size(), number);
  }
  return schema().arrays[number];
}

void ReaderState::check_chunk_number(std::size_t number, std::size_t chunk) const {
  array("read", number);
  if (chunk >= columns[number].chunks.size()) {
    invalid("[read] there are {} chunks, got number {}", columns[number].chunks.size(), chunk);
  }
}

void ReaderState::check_output(std::size_t number, std::int64_t count, const TensorView& out,
                               int threads) const {
  const ArrayInfo& info = array("read", number);
  if (threads < 0) invalid("[read] threads must be 0 or more, got {}", threads);
  if (out.device != Device::Cpu) {
    fail(Errc::Unsupported,
         "[read] samples are read to the CPU; copy chunk_bytes() to the device and unpack() there");
  }
  const Shape shape = with_samples(count, info.shape);
  if (out.dtype != info.dtype || out.shape != shape || out.strides.rank() != shape.rank()) {
    invalid("[read] '{}' is {} {}, the output is {} {}", info.name, to_string(info.dtype),
            to_string(shape), to_string(out.dtype), to_string(out.shape));
  }
  check_apart("read", out);
}

// ---- chunks -------------------------------------------------------------------------------------

ChunkView ReaderState::view_chunk(std::size_t number, std::size_t chunk,
                                  const MappedFile& file) const {
  const Column& column = columns[number];
  const Column::Place& place = column.places[chunk];
  const ByteSpan frame = file.bytes().subspan(place.offset + kRecordHeadBytes + kChunkHeadBytes,
                                              column.chunks[chunk].frame_bytes);
  std::atomic<std::uint64_t>& seen = column.seen[chunk];
  std::uint64_t state = seen.load(std::memory_order_relaxed);
  if (state == 0) {
    state = look_at(file, number, chunk);
    file.note_read(frame.size());
    seen.store(state, std::memory_order_relaxed);
  }
  const bool raw = (state & Column::kIsRaw) != 0;
  return {.spec = raw ? &raw_spec() : &schemas[place.shard]->arrays[number].codec,
          .rows = static_cast<std::int64_t>(state >> 32),
          .frame = frame,
          .packed = frame.subspan(state & (Column::kIsRaw - 1))};
}

std::uint64_t ReaderState::look_at(const MappedFile& file, std::size_t number,
                                   std::size_t chunk) const {
  const Column::Place& place = columns[number].places[chunk];
  const ChunkInfo& info = columns[number].chunks[chunk];
  try {
    const std::optional<Record> record = record_at(file.bytes(), place.offset);
    if (!record || record->payload.size() != kChunkHeadBytes + info.frame_bytes) {
      fail(Errc::CorruptData, "there is no complete record at its offset");
    }
    const CheckedChunk found = check_chunk(*record, *schemas[place.shard]);
    if (found.head.array != number || info.skip + info.samples > found.head.samples ||
        packed_crc_of(found.frame) != place.crc) {
      fail(Errc::CorruptData, "the index says otherwise of it");
    }
    const auto header = static_cast<std::uint64_t>(found.packed.data() - found.frame.data());
    return std::uint64_t{found.head.samples} << 32 | header | (found.raw ? Column::kIsRaw : 0);
  } catch (const Error& error) {
    fail(error.code(),
         "[read] '{}': the chunk of '{}' with samples {} to {} is broken: {}; `tuckfold repair` "
         "keeps the rest",
         file.path(), schema().arrays[number].name, info.first, info.first + info.samples - 1,
         error.what());
  }
}

const std::byte* ReaderState::whole_chunk(std::size_t number, std::size_t chunk, int threads,
                                          std::unique_ptr<std::byte[]>& room) const {
  const Column& column = columns[number];
  if (column.kept != nullptr) {
    if (const std::byte* rows = column.kept->find(chunk)) return rows;
  }
  const FoundChunk found = find_chunk(number, chunk);
  found.file->note_read(found.packed.size());
  const ArrayInfo& info = schema().arrays[number];
  room = std::make_unique_for_overwrite<std::byte[]>(info.sample_bytes() *
                                                     static_cast<std::size_t>(found.rows));
  unpack(*found.spec, found.packed,
         TensorView(room.get(), info.dtype, with_samples(found.rows, info.shape)),
         {.threads = threads});
  return column.kept != nullptr ? column.kept->keep(chunk, std::move(room)) : room.get();
}

void ReaderState::read_rows(std::size_t number, std::size_t chunk, std::int64_t first,
                            const TensorView& out, int threads) const {
  const ArrayInfo& info = schema().arrays[number];
  const std::int64_t row = columns[number].chunks[chunk].skip + first;
  const std::int64_t rows = out.shape[0];
  if (columns[number].kept == nullptr || columns[number].kept->find(chunk) == nullptr) {
    const FoundChunk found = find_chunk(number, chunk);
    const bool alone =
        rows < found.rows && rows_independent(*found.spec, with_samples(found.rows, info.shape));
    const std::size_t each = found.packed.size() / static_cast<std::size_t>(found.rows);
    if (rows == found.rows) {
      found.file->note_read(found.packed.size());
      return unpack(*found.spec, found.packed, out, {.threads = threads});
    }
    if (alone) {
      found.file->note_read(static_cast<std::size_t>(rows) * each / MappedFile::kAloneShare);
      return unpack(*found.spec,
                    found.packed.subspan(static_cast<std::size_t>(row) * each,
                                         static_cast<std::size_t>(rows) * each),
                    out, {.threads = threads});
    }
  }
  std::unique_ptr<std::byte[]> room;
  const std::byte* all = whole_chunk(number, chunk, threads, room);
  const FlatWriter writer(out);
  writer.scatter_bytes(0, writer.elems(),
                       all + static_cast<std::size_t>(row) * info.sample_bytes());
}

void ReaderState::restore_fill(std::size_t number, std::int64_t first, const TensorView& out,
                               int threads) const {
  if (number >= masks.size() || !masks[number]) return;
  const std::size_t mask = *masks[number];
  const auto marks =
      std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(out.shape.elems()));
  const TensorView all(marks.get(), DType::U8, out.shape);
  for (std::int64_t row = 0; row < out.shape[0];) {
    const std::size_t i = columns[mask].chunk_of(first + row);
    const ChunkInfo& chunk = columns[mask].chunks[i];
    const std::int64_t from = first + row - chunk.first;
    const std::int64_t rows = std::min(chunk.samples - from, out.shape[0] - row);
    read_rows(mask, i, from, rows_of(all, row, rows), threads);
    row += rows;
  }
  for (std::int64_t row = 0; row < out.shape[0];) {
    const std::size_t i = columns[number].chunk_of(first + row);
    const ChunkInfo& chunk = columns[number].chunks[i];
    const std::int64_t rows =
        std::min(chunk.first + chunk.samples - first - row, out.shape[0] - row);
    if (!is_exact(*find_chunk(number, i).spec)) fill[number].step_aside(rows_of(out, row, rows));
    row += rows;
  }
  if (!fill[number].restore(marks.get(), out)) {
    fail(Errc::CorruptData,
         "[read] the mask '{}' has a mark of no fill value at samples {} to {}; write it again",
         schema().arrays[mask].name, first, first + out.shape[0] - 1);
  }
}

// ---- FileReader ---------------------------------------------------------------------------------

FileReader::FileReader(const std::string& path, const ReadOptions& options) {
  // If a dataset is replaced while it is opened, shards that its old manifest lists are gone.
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    const auto file = std::make_shared<const MappedFile>(path);
    auto impl = std::make_unique<Impl>();
    try {
      impl->open(file, options);
      impl_ = std::move(impl);
      return;
    } catch (const Error&) {
      if (attempt == kAttempts || !is_manifest(file->bytes()) ||
          std::ranges::equal(MappedFile(path).bytes(), file->bytes())) {
        throw;
      }
    }
  }
}
FileReader::~FileReader() = default;
FileReader::FileReader(FileReader&&) noexcept = default;
FileReader& FileReader::operator=(FileReader&&) noexcept = default;

std::span<const ArrayInfo> FileReader::arrays() const { return impl_->shown(); }

std::optional<std::size_t> FileReader::mask(std::size_t array) const {
  if (array >= impl_->masks.size()) {
    invalid("[read] there are {} arrays, got number {}", impl_->masks.size(), array);
  }
  return impl_->masks[array];
}
std::int64_t FileReader::samples() const { return impl_->samples; }
const std::string& FileReader::metadata() const { return impl_->schema().metadata; }

std::uint64_t FileReader::file_bytes() const { return impl_->file_bytes; }
std::uint64_t FileReader::checksum() const { return impl_->checksum; }
std::span<const TrailingData> FileReader::trailing_data() const { return impl_->trailing; }

std::uint64_t FileReader::trailing_bytes() const {
  std::uint64_t bytes = 0;
  for (const TrailingData& trailing : impl_->trailing) bytes += trailing.bytes;
  return bytes;
}

std::size_t FileReader::find(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const ArrayInfo& array : arrays()) {
    if (array.name == name) return names.size();
    names.push_back(array.name);
  }
  invalid("[read] there is no array '{}', but {}", name, fmt::join(names, ", "));
}

void FileReader::read(std::size_t array, std::int64_t first, std::int64_t count,
                      const TensorView& out, int threads) const {
  impl_->array("read", array);
  if (first < 0 || count < 0 || first > samples() || count > samples() - first) {
    invalid("[read] samples must be in 0..{}, got {} from {} on", samples(), count, first);
  }
  impl_->check_output(array, count, out, threads);
  if (count == 0) return;
  const std::vector<ChunkInfo>& chunks = impl_->columns[array].chunks;
  const std::size_t begin = impl_->columns[array].chunk_of(first);
  const std::size_t end = impl_->columns[array].chunk_of(first + count - 1) + 1;
  const auto read_chunk = [&](std::size_t i, int chunk_threads) {
    const std::int64_t from = std::max(first, chunks[i].first);
    const std::int64_t to = std::min(first + count, chunks[i].first + chunks[i].samples);
    const TensorView part = rows_of(out, from - first, to - from);
    impl_->read_rows(array, i, from - chunks[i].first, part, chunk_threads);
    impl_->restore_fill(array, from, part, chunk_threads);
  };
  if (end - begin == 1) return read_chunk(begin, threads);
  std::exception_ptr error;  // of the first chunk that has one
  std::size_t error_chunk = end;
  std::mutex mutex;
  parallel_for(static_cast<std::int64_t>(end - begin), thread_count(threads),
               [&](std::int64_t from, std::int64_t to) {
                 for (std::int64_t k = from; k < to; ++k) {
                   const std::size_t i = begin + static_cast<std::size_t>(k);
                   try {
                     read_chunk(i, 1);
                   } catch (...) {
                     const std::lock_guard lock(mutex);
                     if (i < error_chunk) error = std::current_exception();
                     error_chunk = std::min(error_chunk, i);
                   }
                 }
               });
  if (error) std::rethrow_exception(error);
}

void FileReader::read_one(std::size_t array, std::int64_t sample, const TensorView& out) const {
  const ArrayInfo& info = impl_->array("read", array);
  if (out.shape != info.shape || out.strides.rank() != out.shape.rank()) {
    invalid("[read] a sample of '{}' is {}, the output is {}", info.name, to_string(info.shape),
            to_string(out.shape));
  }
  Shape strides{std::max<std::int64_t>(info.shape.elems(), 1)};
  for (const std::int64_t stride : out.strides) strides.push_back(stride);
  read(array, sample, 1,
       TensorView(out.data, out.dtype, with_samples(1, info.shape), strides, out.device), 1);
}

std::span<const ChunkInfo> FileReader::chunks(std::size_t array) const {
  impl_->array("read", array);
  return impl_->columns[array].chunks;
}

const CodecSpec& FileReader::chunk_codec(std::size_t array, std::size_t chunk) const {
  impl_->check_chunk_number(array, chunk);
  return impl_->schemas[impl_->columns[array].places[chunk].shard]->arrays[array].codec;
}

ChunkBytes FileReader::chunk_bytes(std::size_t array, std::size_t chunk) const {
  impl_->check_chunk_number(array, chunk);
  FoundChunk found = impl_->find_chunk(array, chunk);
  found.file->note_read(found.frame.size());
  return {.frame = found.frame, .owner = std::move(found.file)};
}

}  // namespace tuckfold
