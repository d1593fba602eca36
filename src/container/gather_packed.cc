// Packed samples in any order, brought together for a device that unpacks them: first all rows are
// found, so that their sizes are known, then each codec's are copied side by side.
#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "container/row_finder.h"

namespace tuckfold {
namespace {

constexpr std::size_t kFoundAlone = 4096;        // samples that one thread finds
constexpr std::int64_t kFoundTogether = 8;       // samples that a thread finds at a time
constexpr std::size_t kCopiedBytes = 256 << 10;  // by a thread at a time: it has to wake first

class PackedGather {
 public:
  PackedGather(const ReaderState& impl, std::size_t array, std::span<const std::int64_t> samples)
      : impl_(impl), array_(array), samples_(samples), rows_(samples.size()) {}

  void find(int threads) {
    // Rows of chunks that were checked are found in less time than threads need to begin.
    std::vector<std::size_t> rest;
    RowFinder own(impl_, array_);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (i < kFoundAlone && is_checked(samples_[i])) {
        find(own, i);
      } else {
        rest.push_back(i);
      }
    }
    held_ = own.held();
    const std::int64_t count = std::ssize(rest);
    parallel_for((count + kFoundTogether - 1) / kFoundTogether, threads,
                 [&](std::int64_t begin, std::int64_t end) {
                   RowFinder finder(impl_, array_);
                   const std::int64_t last = std::min(count, end * kFoundTogether);
                   for (std::int64_t i = begin * kFoundTogether; i < last; ++i) {
                     find(finder, rest[static_cast<std::size_t>(i)]);
                   }
                   const std::lock_guard lock(mutex_);
                   held_.insert(held_.end(), finder.held().begin(), finder.held().end());
                 });
    error_.rethrow();
  }

  // What the rows become; all of one codec are together.
  PackedBatch parts() {
    PackedBatch batch;
    batch.places.reserve(rows_.size());
    order_.reserve(rows_.size());
    std::vector<bool> taken(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (taken[i]) continue;
      const Row& like = rows_[i];
      const std::size_t offset =
          (batch.bytes + PackedBatch::kAlign - 1) / PackedBatch::kAlign * PackedBatch::kAlign;
      PackedBatch::Part part{.codec = *like.spec, .offset = offset};
      for (std::size_t k = i; k < rows_.size(); ++k) {
        if (taken[k] || rows_[k].bytes != like.bytes || !same(rows_[k].spec, like.spec)) continue;
        taken[k] = true;
        batch.places.push_back(static_cast<std::int32_t>(k));
        order_.push_back(rows_[k].data);
        ++part.samples;
      }
      part.bytes = static_cast<std::size_t>(part.samples) * like.bytes;
      batch.bytes = offset + part.bytes;
      batch.parts.push_back(std::move(part));
    }
    return batch;
  }

  void copy(const PackedBatch& batch, std::byte* room, int threads) const {
    std::size_t first = 0;
    for (const PackedBatch::Part& part : batch.parts) {
      const auto rows = std::span(order_).subspan(first, static_cast<std::size_t>(part.samples));
      const std::size_t each = part.bytes / rows.size();
      const std::size_t some =
          std::max<std::size_t>(1, kCopiedBytes / std::max<std::size_t>(1, each));
      parallel_for(static_cast<std::int64_t>((rows.size() + some - 1) / some), threads,
                   [&](std::int64_t begin, std::int64_t end) {
                     const std::size_t from = static_cast<std::size_t>(begin) * some;
                     const std::size_t to =
                         std::min(rows.size(), static_cast<std::size_t>(end) * some);
                     copy_rows(rows.subspan(from, to - from), each,
                               room + part.offset + from * each, static_cast<std::int64_t>(each));
                   });
      first += rows.size();
    }
    if (!held_.empty()) held_.back()->note_read(batch.bytes / MappedFile::kAloneShare);
  }

 private:
  struct Row {
    const std::byte* data = nullptr;
    const CodecSpec* spec = nullptr;
    std::size_t bytes = 0;
  };

  // Shards have objects of their own for equal codecs.
  static bool same(const CodecSpec* a, const CodecSpec* b) { return a == b || *a == *b; }

  bool is_checked(std::int64_t sample) const {
    const Column& column = impl_.columns[array_];
    return column.seen[column.chunk_of(sample)].load(std::memory_order_relaxed) != 0;
  }

  void find(RowFinder& finder, std::size_t at) noexcept {
    try {
      const std::byte* data = finder.find(samples_[at]);
      rows_[at] = {.data = data, .spec = finder.spec(), .bytes = finder.row_bytes()};
    } catch (...) {
      error_.note(samples_[at]);
    }
  }

  const ReaderState& impl_;
  std::size_t array_;
  std::span<const std::int64_t> samples_;
  std::vector<Row> rows_;
  std::vector<const std::byte*> order_;  // rows, as they lie in the parts
  std::mutex mutex_;
  std::vector<std::shared_ptr<const MappedFile>> held_;  // whose bytes are in `rows_`
  LowestError error_;
};

}  // namespace

bool FileReader::is_packed_alone(std::size_t array) const {
  if (array >= arrays().size()) {
    invalid("[read] there are {} arrays, got number {}", arrays().size(), array);
  }
  return impl_->columns[array].rows_alone && !impl_->masks[array];
}

PackedBatch FileReader::gather_packed(std::size_t array, std::span<const std::int64_t> samples,
                                      std::span<std::byte> room, int threads) const {
  if (!is_packed_alone(array)) {
    fail(Errc::Unsupported,
         "[read] samples of '{}' are not packed alone, with {}; read them unpacked",
         arrays()[array].name, arrays()[array].codec.print());
  }
  if (threads < 0) invalid("[read] threads must be 0 or more, got {}", threads);
  if (std::cmp_greater(samples.size(), std::numeric_limits<std::int32_t>::max())) {
    invalid("[read] a batch has fewer than 2^31 samples, got {}", samples.size());
  }
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= this->samples()) {
      invalid("[read] samples must be in 0..{}, got {}", this->samples() - 1, sample);
    }
  }
  PackedGather gather(*impl_, array, samples);
  gather.find(thread_count(threads));
  PackedBatch batch = gather.parts();
  if (batch.bytes <= room.size()) gather.copy(batch, room.data(), thread_count(threads));
  return batch;
}

}  // namespace tuckfold
