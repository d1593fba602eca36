// What a FileReader is made of: the chunks of every array over all files, checked on first use.
// reader.cc has the methods, gather.cc reads samples in any order.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/fill.h"
#include "container/shard_files.h"
#include "container/shards.h"

namespace tuckfold {

// A chunk that was checked, in a file that the caller holds.
struct ChunkView {
  const CodecSpec* spec = nullptr;
  std::int64_t rows = 0;
  ByteSpan frame{}, packed{};
};
struct FoundChunk : ChunkView {
  std::shared_ptr<const MappedFile> file;
};

// Chunks of small arrays whose samples cannot be unpacked alone, such as labels, as unpacked by
// their first reader. There are no locks, so that the child of a fork finds none held.
class KeptChunks {
 public:
  explicit KeptChunks(std::size_t chunks)
      : count_(chunks), chunks_(std::make_unique<std::atomic<std::byte*>[]>(chunks)) {}
  ~KeptChunks() {
    for (std::size_t i = 0; i < count_; ++i) delete[] chunks_[i].load();
  }
  KeptChunks(const KeptChunks&) = delete;
  KeptChunks& operator=(const KeptChunks&) = delete;

  const std::byte* find(std::size_t chunk) const noexcept {
    return chunks_[chunk].load(std::memory_order_acquire);
  }
  // Keeps the first of several that threads have unpacked meanwhile.
  const std::byte* keep(std::size_t chunk, std::unique_ptr<std::byte[]> rows) const noexcept {
    std::byte* before = nullptr;
    return chunks_[chunk].compare_exchange_strong(before, rows.get()) ? rows.release() : before;
  }

 private:
  std::size_t count_;
  std::unique_ptr<std::atomic<std::byte*>[]> chunks_;
};

// Chunks of one array over all shards, in order.
struct Column {
  std::vector<ChunkInfo> chunks;
  struct Place {
    std::uint32_t shard;
    std::uint32_t crc;  // of the packed bytes
    std::uint64_t offset;
  };
  std::vector<Place> places;
  // 0: not checked yet; else the rows of the frame, kIsRaw, and the bytes of its header: to look
  // for them there would be one more page to fetch for each sample.
  std::unique_ptr<std::atomic<std::uint64_t>[]> seen;
  static constexpr std::uint64_t kIsRaw = std::uint64_t{1} << 31;
  bool rows_alone = false;  // samples are unpacked alone, in all shards
  std::unique_ptr<const KeptChunks> kept{};

  // The chunk of a sample. Most chunks have as many samples as the first, so it is guessed.
  std::size_t chunk_of(std::int64_t sample) const noexcept;
};

// FileReader::Impl, by a name that gather.cc can use.
struct ReaderState {
  static constexpr std::uint64_t kKeptBytes = 16 << 20;  // of an array

  ShardFiles files;
  std::vector<std::shared_ptr<const Schema>> schemas;  // of each file; mostly one for all
  std::vector<Column> columns;
  std::vector<TrailingData> trailing;
  std::uint64_t file_bytes = 0;
  std::uint64_t checksum = 0;  // of all indexes
  std::int64_t samples = 0;

  std::vector<FillMarks> fill;                    // of each array that is no mask
  std::vector<std::optional<std::size_t>> masks;  // its number, where it has one

  const Schema& schema() const { return *schemas.front(); }
  std::span<const ArrayInfo> shown() const {
    return std::span(schema().arrays).first(masks.size());
  }

  void open(const std::shared_ptr<const MappedFile>& file, const ReadOptions& options);

  const ArrayInfo& array(const char* verb, std::size_t number) const;
  void check_chunk_number(std::size_t number, std::size_t chunk) const;
  // Throws InvalidArgument or Unsupported where samples cannot be read to `out`.
  void check_output(std::size_t number, std::int64_t count, const TensorView& out,
                    int threads) const;

  FoundChunk find_chunk(std::size_t number, std::size_t chunk) const {
    std::shared_ptr<const MappedFile> file = files.get(columns[number].places[chunk].shard);
    return {view_chunk(number, chunk, *file), std::move(file)};
  }
  // The same of a chunk's file, which the caller has.
  ChunkView view_chunk(std::size_t number, std::size_t chunk, const MappedFile& file) const;

  // Reads rows of a chunk from `first` on, as many as `out` has.
  void read_rows(std::size_t number, std::size_t chunk, std::int64_t first, const TensorView& out,
                 int threads) const;
  // Puts fill values back to samples `first` on, as many as `out` has.
  void restore_fill(std::size_t number, std::int64_t first, const TensorView& out,
                    int threads) const;
  // All rows of a chunk; in `room`, unless the column keeps them.
  const std::byte* whole_chunk(std::size_t number, std::size_t chunk, int threads,
                               std::unique_ptr<std::byte[]>& room) const;

 private:
  void add_schema(Schema schema, const std::string& path);
  void add_file(const std::shared_ptr<const MappedFile>& file, Index index);
  void prepare_columns();
  // Checks all of a chunk; returns its value for `seen`.
  std::uint64_t look_at(const MappedFile& file, std::size_t number, std::size_t chunk) const;
};

struct FileReader::Impl : ReaderState {};

}  // namespace tuckfold
