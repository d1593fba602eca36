// Samples in any order. Those that are unpacked alone cost little more than their bytes: packed rows
// are brought together, some at a time, and unpacked to consecutive rows of the output by one call.
// Others are read chunk by chunk.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/dct_quant/dct_quant_rows.h"
#include "codec/registry.h"
#include "container/row_finder.h"

namespace tuckfold {
namespace {

constexpr std::size_t kPieceBytes = 128 << 10;  // unpacked together: they stay in a core's cache

// ---- samples that are unpacked alone ------------------------------------------------------------

class RowGather {
 public:
  RowGather(const ReaderState& impl, std::size_t array, std::span<const std::int64_t> samples,
            const TensorView& out)
      : impl_(impl),
        array_(array),
        column_(impl.columns[array]),
        samples_(samples),
        out_(out),
        sample_bytes_(impl.schema().arrays[array].sample_bytes()) {
    Shape dense = row_major_strides(out.shape);
    dense[0] = out.strides[0];
    to_dense_rows_ = out.strides == dense && out.dtype != DType::Bool;  // others unpack() handles
    step_ = out.strides[0] * static_cast<std::int64_t>(size_bytes(out.dtype));
  }

  void run(int threads) {
    const auto each = static_cast<std::int64_t>(
        std::max<std::size_t>(1, kPieceBytes / std::max<std::size_t>(1, sample_bytes_)));
    const std::int64_t count = std::ssize(samples_);
    parallel_for((count + each - 1) / each, thread_count(threads),
                 [&](std::int64_t begin, std::int64_t end) {
                   Piece piece{RowFinder(impl_, array_)};
                   for (std::int64_t i = begin; i < end; ++i) {
                     read(piece, i * each, std::min(each, count - i * each));
                   }
                 });
    error_.rethrow();
  }

 private:
  // What a thread has while it reads; reused from piece to piece.
  struct Piece {
    RowFinder finder;
    std::vector<const std::byte*> rows{};
    std::vector<std::byte> packed{};
    std::size_t beyond = 0;  // bytes of the file after each of the rows, at least
  };

  // Rows first … first + count of the output. Rows of one spec in a row are unpacked together:
  // chunks that the codec did not suit are raw.
  void read(Piece& piece, std::int64_t first, std::int64_t count) {
    piece.finder.forget();
    piece.rows.clear();
    const CodecSpec* spec = nullptr;
    std::size_t bytes = 0;
    std::int64_t begin = first;
    piece.beyond = SIZE_MAX;
    const auto flush = [&](std::int64_t end) {
      if (!piece.rows.empty() && !unpack_in_place(piece, *spec, bytes, begin)) {
        look_ahead(piece, first + count, count);
        unpack_rows(piece, *spec, bytes, begin, end);
      }
      piece.rows.clear();
      piece.beyond = SIZE_MAX;
    };
    std::int64_t at = first;
    try {
      for (; at < first + count; ++at) {
        const std::byte* row = piece.finder.find(samples_[static_cast<std::size_t>(at)]);
        if (piece.finder.spec() != spec) {
          flush(at);
          spec = piece.finder.spec();
          bytes = piece.finder.row_bytes();
          begin = at;
        }
        piece.rows.push_back(row);
        piece.beyond = std::min(piece.beyond, piece.finder.beyond(row));
      }
      at = begin;
      flush(first + count);
    } catch (...) {
      note(first, count, at);
    }
  }

  // Fetches rows of the next piece while those of this one are unpacked.
  void look_ahead(const Piece& piece, std::int64_t first, std::int64_t count) const {
    const std::int64_t end = std::min(first + count, std::ssize(samples_));
    for (; first < end; ++first) {
      piece.finder.look_ahead(samples_[static_cast<std::size_t>(first)]);
    }
  }

  // The first of the samples that cannot be read may not be the lowest of the piece that cannot.
  void note(std::int64_t first, std::int64_t count, std::int64_t at) {
    error_.note(samples_[static_cast<std::size_t>(at)]);
    for (std::int64_t i = at + 1; i < first + count; ++i) {
      const std::int64_t sample = samples_[static_cast<std::size_t>(i)];
      try {
        impl_.find_chunk(array_, column_.chunk_of(sample));
      } catch (...) {
        error_.note(sample);
      }
    }
  }

  // Images of bytes, for which there is a kernel that reads rows where they are. False: there is not.
  bool unpack_in_place(const Piece& piece, const CodecSpec& spec, std::size_t bytes,
                       std::int64_t begin) const {
    const Stage& stage = spec.stages().front();
    if (!to_dense_rows_ || out_.dtype != DType::U8 || &row_of(stage) != &kDctQuant ||
        spec.stages().size() != 1 || piece.beyond < dct_quant::kBeyondRow) {
      return false;
    }
    const std::int64_t count = std::ssize(piece.rows);
    if (!dct_quant::unpack_byte_rows(
            stage, piece.rows, rows_of(out_, begin, count).shape,
            static_cast<std::uint8_t*>(out_.data) + begin * out_.strides[0], out_.strides[0])) {
      return false;
    }
    note_read(piece, bytes);
    return true;
  }

  static void note_read(const Piece& piece, std::size_t bytes) {
    piece.finder.file().note_read(piece.rows.size() * bytes / MappedFile::kAloneShare);
  }

  void unpack_rows(Piece& piece, const CodecSpec& spec, std::size_t bytes, std::int64_t begin,
                   std::int64_t end) {
    const std::size_t count = piece.rows.size();
    note_read(piece, bytes);
    if (to_dense_rows_ && &row_of(spec.stages().front()) == &kRaw && spec.stages().size() == 1) {
      copy_rows(piece.rows, bytes, static_cast<std::byte*>(out_.data) + begin * step_, step_);
      return;
    }
    std::span<const std::byte> packed{piece.rows.front(), count * bytes};
    for (std::size_t i = 1; i < count; ++i) {
      if (piece.rows[i] == packed.data() + i * bytes) continue;
      piece.packed.resize(count * bytes);
      copy_rows(piece.rows, bytes, piece.packed.data(), static_cast<std::int64_t>(bytes));
      packed = piece.packed;
      break;
    }
    unpack(spec, packed, rows_of(out_, begin, end - begin), {.threads = 1});
  }

  const ReaderState& impl_;
  std::size_t array_;
  const Column& column_;
  std::span<const std::int64_t> samples_;
  const TensorView& out_;
  std::size_t sample_bytes_;
  bool to_dense_rows_;
  std::int64_t step_;  // bytes between rows of the output
  LowestError error_;
};

// ---- numbers of chunks that are kept ------------------------------------------------------------

// Numbers, such as labels, with nothing but a copy for each. False where a chunk has yet to be
// unpacked.
template <std::size_t kBytes>
bool copy_kept(const Column& column, std::span<const std::int64_t> samples, const TensorView& out) {
  auto* to = static_cast<std::byte*>(out.data);
  const std::int64_t step = out.strides[0] * static_cast<std::int64_t>(kBytes);
  for (const std::int64_t sample : samples) {
    const std::size_t number = column.chunk_of(sample);
    const std::byte* rows = column.kept->find(number);
    if (rows == nullptr) return false;
    const ChunkInfo& chunk = column.chunks[number];
    std::memcpy(to, rows + static_cast<std::size_t>(sample - chunk.first + chunk.skip) * kBytes,
                kBytes);
    to += step;
  }
  return true;
}

bool copy_kept(const Column& column, std::span<const std::int64_t> samples, const TensorView& out) {
  if (column.kept == nullptr || out.shape.rank() != 1) return false;
  switch (size_bytes(out.dtype)) {
    case 1: return copy_kept<1>(column, samples, out);
    case 2: return copy_kept<2>(column, samples, out);
    case 4: return copy_kept<4>(column, samples, out);
    default: return copy_kept<8>(column, samples, out);
  }
}

// ---- samples of chunks that are unpacked as a whole ---------------------------------------------

class ChunkGather {
 public:
  ChunkGather(const FileReader& reader, const ReaderState& impl, std::size_t array,
              std::span<const std::int64_t> samples, const TensorView& out)
      : reader_(reader),
        impl_(impl),
        array_(array),
        column_(impl.columns[array]),
        out_(out),
        sample_bytes_(impl.schema().arrays[array].sample_bytes()),
        masked_(impl.masks[array].has_value()) {
    wanted_.reserve(samples.size());
    for (const std::int64_t sample : samples) wanted_.push_back({sample, std::ssize(wanted_)});
  }

  void run(int threads) {
    if (all_kept()) return copy(wanted_);
    std::ranges::stable_sort(wanted_, {}, &Wanted::sample);
    find_tasks();
    if (tasks_.size() == 1) return read(tasks_.front(), threads);
    parallel_for(std::ssize(tasks_), thread_count(threads),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (auto i = static_cast<std::size_t>(begin); std::cmp_less(i, end); ++i) {
                     try {
                       read(tasks_[i], 1);
                     } catch (...) {
                       error_.note(tasks_[i].front().sample);
                     }
                   }
                 });
    error_.rethrow();
  }

 private:
  struct Wanted {
    std::int64_t sample, row;  // of the output
  };
  using Task = std::span<const Wanted>;  // all in one chunk

  bool all_kept() const {
    if (column_.kept == nullptr || masked_) return false;
    return std::ranges::all_of(wanted_, [&](const Wanted& wanted) {
      return column_.kept->find(column_.chunk_of(wanted.sample)) != nullptr;
    });
  }

  void find_tasks() {
    for (std::size_t at = 0; at < wanted_.size();) {
      const ChunkInfo& chunk = column_.chunks[column_.chunk_of(wanted_[at].sample)];
      std::size_t end = at + 1;
      while (end < wanted_.size() && wanted_[end].sample < chunk.first + chunk.samples) ++end;
      tasks_.push_back(Task(wanted_).subspan(at, end - at));
      at = end;
    }
  }

  void read(Task task, int threads) const {
    const Wanted& first = task.front();
    const std::int64_t count = task.back().sample - first.sample + 1;
    bool in_order = std::cmp_equal(count, task.size());
    for (std::size_t i = 0; in_order && i < task.size(); ++i) {
      const auto step = static_cast<std::int64_t>(i);
      in_order = task[i].sample == first.sample + step && task[i].row == first.row + step;
    }
    if (in_order) {
      return reader_.read(array_, first.sample, count, rows_of(out_, first.row, count), threads);
    }
    std::unique_ptr<std::byte[]> room;
    if (masked_) {  // fill values have to be restored
      const ArrayInfo& info = impl_.schema().arrays[array_];
      room = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(count) *
                                                         sample_bytes_);
      reader_.read(array_, first.sample, count,
                   TensorView(room.get(), info.dtype, with_samples(count, info.shape)), threads);
      return copy(task, room.get(), first.sample);
    }
    const std::size_t number = column_.chunk_of(first.sample);
    const ChunkInfo& chunk = column_.chunks[number];
    copy(task, impl_.whole_chunk(array_, number, threads, room), chunk.first - chunk.skip);
  }

  // Samples of unpacked rows, the first of which is sample `zero`.
  void copy(Task task, const std::byte* rows, std::int64_t zero) const {
    for (const Wanted& wanted : task) {
      put(wanted.row, rows + static_cast<std::size_t>(wanted.sample - zero) * sample_bytes_);
    }
  }

  // Samples of chunks that are kept.
  void copy(Task task) const {
    for (const Wanted& wanted : task) {
      const std::size_t number = column_.chunk_of(wanted.sample);
      const ChunkInfo& chunk = column_.chunks[number];
      const auto row = static_cast<std::size_t>(wanted.sample - chunk.first + chunk.skip);
      put(wanted.row, column_.kept->find(number) + row * sample_bytes_);
    }
  }

  void put(std::int64_t row, const std::byte* sample) const {
    if (out_.shape.rank() == 1) {  // numbers, such as labels
      auto* to = static_cast<std::byte*>(out_.data);
      std::memcpy(to + row * out_.strides[0] * static_cast<std::int64_t>(sample_bytes_), sample,
                  sample_bytes_);
      return;
    }
    const FlatWriter writer(rows_of(out_, row, 1));
    writer.scatter_bytes(0, writer.elems(), sample);
  }

  const FileReader& reader_;
  const ReaderState& impl_;
  std::size_t array_;
  const Column& column_;
  const TensorView& out_;
  std::size_t sample_bytes_;
  bool masked_;
  std::vector<Wanted> wanted_;
  std::vector<Task> tasks_;
  LowestError error_;
};

}  // namespace

void copy_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to,
               std::int64_t step) {
  // To find a page takes longer than to fetch a line, and several are found at once: so pages are
  // touched first, of some rows together.
  constexpr std::size_t kAhead = 3, kLine = 64, kLines = 8, kPages = 8, kPage = 4096;
  for (std::size_t i = 0; i < rows.size(); ++i, to += step) {
    if (i % kPages == 0) {
      const std::size_t end = std::min(rows.size(), i + 2 * kPages);
      for (std::size_t k = i == 0 ? 0 : i + kPages; k < end; ++k) {
        __builtin_prefetch(rows[k]);
        const std::size_t rest = kPage - reinterpret_cast<std::uintptr_t>(rows[k]) % kPage;
        if (rest < bytes) __builtin_prefetch(rows[k] + rest);
      }
    }
    if (i + kAhead < rows.size()) {
      const std::byte* next = rows[i + kAhead];
      const std::size_t some = std::min(bytes, kLines * kLine);
      for (std::size_t at = 0; at < some; at += kLine) __builtin_prefetch(next + at);
    }
    std::memcpy(to, rows[i], bytes);
  }
}

void FileReader::gather(std::size_t array, std::span<const std::int64_t> samples,
                        const TensorView& out, int threads) const {
  if (array >= arrays().size()) {
    invalid("[read] there are {} arrays, got number {}", arrays().size(), array);
  }
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= this->samples()) {
      invalid("[read] samples must be in 0..{}, got {}", this->samples() - 1, sample);
    }
  }
  impl_->check_output(array, std::ssize(samples), out, threads);
  if (samples.empty()) return;
  if (out.data == nullptr && out.shape.elems() > 0) invalid("[read] the output has no data");
  const bool masked = impl_->masks[array].has_value();
  if (!masked && copy_kept(impl_->columns[array], samples, out)) return;
  if (impl_->columns[array].rows_alone && !masked) {
    RowGather(*impl_, array, samples, out).run(threads);
  } else {
    ChunkGather(*this, *impl_, array, samples, out).run(threads);
  }
}

}  // namespace tuckfold
