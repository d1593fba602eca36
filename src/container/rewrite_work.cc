// Rewrite::write: makes chunks in parallel and writes them in order.
#include <algorithm>
#include <exception>

#include "base/fail.h"
#include "base/io/new_file.h"
#include "base/parallel.h"
#include "codec/registry.h"
#include "container/chunk_packer.h"
#include "container/frame.h"
#include "container/resume.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

constexpr std::uint64_t kGroupBytes = 64 << 20;  // of samples whose chunks are made side by side
constexpr std::size_t kHeads = kRecordHeadBytes + kChunkHeadBytes;

}  // namespace

class Rewrite::Work {
 public:
  Work(const Rewrite& plan, const RewriteOptions& options, NewFile& out)
      : plan_(plan),
        options_(options),
        threads_(thread_count(options.threads)),
        out_(out),
        packer_(plan.schema_, options.checks, options.seed, plan.first_),
        found_(plan.arrays_.size()) {}

  void run() {
    index_.schema.arrays = plan_.schema_;
    index_.schema.metadata = options_.metadata;
    out_.write(file_start());
    const std::string schema = schema_text(index_.schema);
    out_.write(make_record(RecordKind::Schema, std::as_bytes(std::span(schema)), out_.size()));
    const std::span<const NewChunk> new_chunks = plan_.new_chunks_;
    for (std::size_t begin = 0; begin < new_chunks.size();) {
      std::size_t end = begin;
      std::uint64_t bytes = 0;
      const std::size_t most = 4 * static_cast<std::size_t>(threads_);
      while (end < new_chunks.size() && end - begin < most &&
             (end == begin || bytes < kGroupBytes)) {
        bytes += bytes_of(new_chunks[end++]);
      }
      make(new_chunks.subspan(begin, end - begin));
      begin = end;
      if (options_.progress) options_.progress(bytes);
    }
    index_.samples = index_.next_number = static_cast<std::uint64_t>(plan_.samples());
    const Ending ending = make_ending(index_, out_.size());
    out_.write(ending.index);
    out_.write(ending.trailer);
  }

  std::vector<WrittenArray> take_found() { return std::move(found_); }

 private:
  struct Made {
    std::vector<std::byte> kept;  // a record without its head, of packed bytes that stay
    PackedChunk packed;           // else the whole chunk; of one that stays its mask and figures
    std::exception_ptr error;
  };
  // Unpacked samples of an array that a group packs, read once for all chunks of the group.
  struct Unpacked {
    std::int64_t first = 0, end = 0;
    std::vector<std::byte> bytes;
  };

  const RewrittenArray& array_of(const NewChunk& chunk) const { return plan_.arrays_[chunk.array]; }
  std::uint64_t bytes_of(const NewChunk& chunk) const {
    return static_cast<std::uint64_t>(chunk.samples) * array_of(chunk).info.sample_bytes();
  }

  void make(std::span<const NewChunk> group) {
    std::vector<Unpacked> unpacked(plan_.arrays_.size());
    for (const NewChunk& chunk : group) {  // of one array, in the order of samples
      if (chunk.how != How::Pack) continue;
      Unpacked& part = unpacked[chunk.array];
      if (part.end == 0) part.first = chunk.first;
      part.end = chunk.first + chunk.samples;
    }
    for (std::size_t a = 0; a < unpacked.size(); ++a) {
      Unpacked& part = unpacked[a];
      const std::size_t each = plan_.arrays_[a].info.sample_bytes();
      part.bytes.resize(static_cast<std::size_t>(part.end - part.first) * each);
      read_files(plan_.files_, plan_.arrays_[a].from, part.first, part.end - part.first,
                 part.bytes.data(), threads_);
    }
    std::vector<Made> made(group.size());
    const auto make_range = [&](std::int64_t begin, std::int64_t end, int threads) {
      PackBuffers room;
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        try {
          make_chunk(group[i], unpacked[group[i].array], room, made[i], threads);
        } catch (...) {
          made[i].error = std::current_exception();
        }
      }
    };
    if (group.size() == 1) {
      make_range(0, 1, threads_);
    } else {
      parallel_for(std::ssize(group), threads_,
                   [&](std::int64_t begin, std::int64_t end) { make_range(begin, end, 1); });
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (made[i].error) std::rethrow_exception(made[i].error);
      write(group[i], made[i]);
    }
  }

  // Number of a chunk's first sample in the new file.
  std::uint64_t number_of(const NewChunk& chunk) const {
    return static_cast<std::uint64_t>(chunk.first - plan_.first_);
  }

  void make_chunk(const NewChunk& chunk, const Unpacked& part, PackBuffers& room, Made& made,
                  int threads) const {
    const ArrayInfo& info = array_of(chunk).info;
    ChunkPacker::Samples samples{.array = chunk.array,
                                 .number = number_of(chunk),
                                 .view = {nullptr, info.dtype, shape_of(chunk)}};
    try {
      if (chunk.how == How::Pack) {
        samples.view.data = part.bytes.data() + static_cast<std::size_t>(chunk.first - part.first) *
                                                    info.sample_bytes();
        return packer_.pack(samples, room, made.packed, threads);
      }
      if (chunk.how != How::Raw) made.kept = kept_record(chunk);
      std::vector<std::byte> rows;
      if (made.kept.empty() || packer_.looks_at(chunk.array)) {
        rows.resize(bytes_of(chunk));
        read_files(plan_.files_, array_of(chunk).from, chunk.first, chunk.samples, rows.data(), 1);
        samples.view.data = rows.data();
      }
      if (made.kept.empty()) return packer_.store(samples, room, made.packed, threads);
      put_chunk_head(made.kept.data() + kRecordHeadBytes,
                     {.array = chunk.array,
                      .samples = static_cast<std::uint32_t>(chunk.samples),
                      .number = samples.number});
      packer_.keep(samples, made.kept.size() - kHeads, room, made.packed);
    } catch (const Error& error) {
      fail(error.code(), "[rewrite] '{}', samples {} to {}: {}", info.name, chunk.first,
           chunk.first + chunk.samples - 1, error.what());
    }
  }

  Shape shape_of(const NewChunk& chunk) const {
    return with_samples(chunk.samples, array_of(chunk).info.shape);
  }

  // A chunk of unchanged packed bytes; nothing if that is impossible: for a part of a chunk that
  // unpacks as a whole, or if raw samples are among packed ones.
  std::vector<std::byte> kept_record(const NewChunk& chunk) const {
    const RewrittenArray& array = array_of(chunk);
    std::vector<std::byte> packed;
    for (std::uint32_t f = 0; f < plan_.files_.size(); ++f) {
      const FileReader& file = plan_.files_[f];
      const std::int64_t from = std::max(chunk.first - plan_.starts_[f], std::int64_t{0});
      const std::int64_t to =
          std::min(chunk.first + chunk.samples, plan_.starts_[f + 1]) - plan_.starts_[f];
      if (from >= to) continue;
      const std::span<const ChunkInfo> chunks = file.chunks(array.from);
      auto c = static_cast<std::size_t>(
          std::ranges::upper_bound(chunks, from, {}, &ChunkInfo::first) - chunks.begin() - 1);
      for (; c < chunks.size() && chunks[c].first < to; ++c) {
        const ChunkBytes held = file.chunk_bytes(array.from, c);
        const ByteSpan frame = held.frame;
        const RawFrame raw = read_raw_frame(frame);
        const bool whole = chunks[c].first == from && raw.shape[0] == chunk.samples &&
                           chunks[c].samples == chunk.samples;
        if (whole) {
          std::vector<std::byte> record(kHeads);
          record.insert(record.end(), frame.begin(), frame.end());
          return record;
        }
        if (raw.spec != array.info.codec.print() ||
            !rows_independent(array.info.codec, raw.shape) ||
            !rows_independent(array.info.codec, shape_of(chunk))) {
          return {};
        }
        const std::size_t each = raw.packed.size() / static_cast<std::size_t>(raw.shape[0]);
        const std::int64_t row = std::max(from, chunks[c].first) - chunks[c].first + chunks[c].skip;
        const std::int64_t rows =
            std::min(to, chunks[c].first + chunks[c].samples) - std::max(from, chunks[c].first);
        const ByteSpan bytes = raw.packed.subspan(static_cast<std::size_t>(row) * each,
                                                  static_cast<std::size_t>(rows) * each);
        packed.insert(packed.end(), bytes.begin(), bytes.end());
      }
    }
    std::vector<std::byte> record(kHeads + frame_header_bytes(array.info.codec, shape_of(chunk)) +
                                  packed.size());
    write_packed_frame(array.info.codec, array.info.dtype, shape_of(chunk), packed,
                       std::span(record).subspan(kHeads));
    return record;
  }

  void write(const NewChunk& chunk, Made& made) {
    const std::span<std::byte> values =
        made.kept.empty() ? made.packed.values.bytes : std::span(made.kept);
    write_record(chunk, chunk.array, values);
    if (!made.packed.mask.bytes.empty()) {
      const std::size_t mask = *packer_.mask_of(chunk.array);
      write_record(chunk, static_cast<std::uint32_t>(mask), made.packed.mask.bytes);
    }
    found_[chunk.array].add(made.packed.found);
    made = {};
  }

  void write_record(const NewChunk& chunk, std::uint32_t array, std::span<std::byte> record) {
    put_record_head(record, RecordKind::Chunk, out_.size());
    index_.entries.push_back({.array = array,
                              .samples = static_cast<std::uint32_t>(chunk.samples),
                              .first = number_of(chunk),
                              .offset = out_.size(),
                              .payload_bytes = record.size() - kRecordHeadBytes,
                              .skip = 0,
                              .crc = packed_crc_of(record.subspan(kHeads))});
    constexpr std::byte kZeros[kRecordAlign] = {};
    out_.write(record);
    out_.write(std::span(kZeros).first(round_up(record.size(), kRecordAlign) - record.size()));
  }

  const Rewrite& plan_;
  const RewriteOptions& options_;
  int threads_;
  NewFile& out_;
  ChunkPacker packer_;
  std::vector<WrittenArray> found_;
  Index index_;
};

RewriteResult Rewrite::write(const std::string& path, const RewriteOptions& options) const {
  check_metadata(options.metadata);
  NewFile out("write", path);
  Work work(*this, options, out);
  work.run();
  out.finish(options.sync);
  return {.bytes = out.size(), .arrays = work.take_found()};
}

}  // namespace tuckfold
