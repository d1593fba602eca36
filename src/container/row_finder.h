// Where the packed rows of samples are, for threads that read samples in any order. One for each
// thread, of an array whose samples are unpacked alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "container/reader_impl.h"

namespace tuckfold {

// The error of the lowest sample, of all that threads meet.
class LowestError {
 public:
  void note(std::int64_t sample) noexcept {  // in a handler
    const std::lock_guard lock(mutex_);
    if (error_ && sample >= sample_) return;
    error_ = std::current_exception();
    sample_ = sample;
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t sample_ = 0;
};

class RowFinder {
 public:
  RowFinder(const ReaderState& impl, std::size_t array)
      : impl_(impl), array_(array), column_(impl.columns[array]) {}

  // The packed row of a sample, in a chunk that was checked. Valid until forget().
  const std::byte* find(std::int64_t sample) {
    const std::size_t chunk = column_.chunk_of(sample);
    if (chunk != chunk_) {
      const std::uint32_t shard = column_.places[chunk].shard;
      if (file_ == nullptr || shard != shard_) {
        file_ = impl_.files.get(shard);
        shard_ = shard;
        held_.push_back(file_);
      }
      chunk_ = SIZE_MAX;  // if the next line throws
      found_ = impl_.view_chunk(array_, chunk, *file_);
      row_bytes_ = found_.packed.size() / static_cast<std::size_t>(found_.rows);
      chunk_ = chunk;
    }
    const std::int64_t row = sample - column_.chunks[chunk].first + column_.chunks[chunk].skip;
    return found_.packed.data() + static_cast<std::size_t>(row) * row_bytes_;
  }

  // Brings the row of a sample that will be looked for soon closer, or its begin. Only of chunks that
  // were checked, in the file of the last row.
  void look_ahead(std::int64_t sample) const noexcept {
    constexpr std::size_t kLine = 64, kMost = 8192;
    const std::size_t chunk = column_.chunk_of(sample);
    const Column::Place& place = column_.places[chunk];
    const std::uint64_t state = column_.seen[chunk].load(std::memory_order_relaxed);
    if (file_ == nullptr || place.shard != shard_ || state == 0) return;
    const ChunkInfo& info = column_.chunks[chunk];
    const std::size_t head = state & (Column::kIsRaw - 1);
    const std::size_t bytes = (info.frame_bytes - head) / (state >> 32);
    const auto row = static_cast<std::size_t>(sample - info.first + info.skip);
    const std::byte* at = file_->bytes().data() + place.offset + kRecordHeadBytes +
                          kChunkHeadBytes + head + row * bytes;
    for (std::size_t i = 0; i < std::min(bytes, kMost); i += kLine) {
      __builtin_prefetch(at + i, 0, 2);
    }
  }

  // Of the row that was found last.
  const CodecSpec* spec() const { return found_.spec; }
  std::size_t row_bytes() const { return row_bytes_; }
  const MappedFile& file() const { return *file_; }
  // Bytes of the file after it.
  std::size_t beyond(const std::byte* row) const {
    const ByteSpan all = file_->bytes();
    return static_cast<std::size_t>(all.data() + all.size() - row) - row_bytes_;
  }

  // Lets go of files but for the last.
  void forget() {
    held_.clear();
    if (file_ != nullptr) held_.push_back(file_);
  }
  // The files of all rows since then.
  const std::vector<std::shared_ptr<const MappedFile>>& held() const { return held_; }

 private:
  const ReaderState& impl_;
  std::size_t array_;
  const Column& column_;
  std::uint32_t shard_ = 0;
  std::shared_ptr<const MappedFile> file_;  // of that shard
  std::size_t chunk_ = SIZE_MAX;            // of which `found_` and `row_bytes_` are
  std::size_t row_bytes_ = 0;
  ChunkView found_;
  std::vector<std::shared_ptr<const MappedFile>> held_;
};

// Copies rows of so many bytes to places that are `step` bytes apart. Rows are at random places, so
// that the next ones are fetched while one is copied.
void copy_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to,
               std::int64_t step);

}  // namespace tuckfold
