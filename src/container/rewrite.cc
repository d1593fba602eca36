// What becomes of each chunk is planned from the files' indexes alone; rewrite_work.cc does it.
#include "container/rewrite.h"

#include <algorithm>

#include "base/fail.h"
#include "codec/registry.h"
#include "container/format.h"
#include "container/resume.h"

namespace tuckfold {
namespace {

// Chunks of an array that have samples of first .. first + count: numbers from .. to.
std::pair<std::size_t, std::size_t> chunks_in(std::span<const ChunkInfo> chunks, std::int64_t first,
                                              std::int64_t count) {
  const auto begin = std::ranges::upper_bound(chunks, first, {}, &ChunkInfo::first) - 1;
  const auto end = std::ranges::lower_bound(chunks, first + count, {}, &ChunkInfo::first);
  return {static_cast<std::size_t>(begin - chunks.begin()),
          static_cast<std::size_t>(end - chunks.begin())};
}

}  // namespace

void read_files(std::span<const FileReader> files, std::size_t array, std::int64_t first,
                std::int64_t count, std::byte* out, int threads) {
  std::int64_t before = 0;  // samples of the files passed
  for (const FileReader& file : files) {
    const ArrayInfo& info = file.arrays()[array];
    const std::int64_t from = std::max(first - before, std::int64_t{0});
    const std::int64_t to = std::min(first + count - before, file.samples());
    before += file.samples();
    if (from >= to) continue;
    file.read(array, from, to - from,
              TensorView(out, info.dtype, with_samples(to - from, info.shape)), threads);
    out += static_cast<std::size_t>(to - from) * info.sample_bytes();
  }
}

bool is_exact(const CodecSpec& spec) {
  return std::ranges::all_of(spec.stages(), [](const Stage& stage) { return row_of(stage).exact; });
}

Rewrite::Rewrite(std::span<const FileReader> files, std::vector<RewriteArray> arrays)
    : files_(files) {
  for (const FileReader& file : files) {
    starts_.push_back(samples_);
    samples_ += file.samples();
  }
  starts_.push_back(samples_);
  std::vector<ArrayInfo> infos;
  std::vector<bool> as_before;
  for (const RewriteArray& array : arrays) {
    const ArrayInfo& old = files.front().arrays()[array.from];
    ArrayInfo& info = infos.emplace_back(array.info);
    as_before.push_back(
        info.codec == old.codec &&
        (info.samples_per_chunk == 0 || info.samples_per_chunk == old.samples_per_chunk));
    if (info.samples_per_chunk == 0) info.samples_per_chunk = old.samples_per_chunk;
    for (std::size_t f = 0; f < files.size() && as_before.back(); ++f) {
      info.samples_per_chunk =
          std::max(info.samples_per_chunk, files[f].arrays()[array.from].samples_per_chunk);
    }
  }
  check_arrays(infos);
  for (std::uint32_t i = 0; i < arrays.size(); ++i) {
    arrays_.push_back({.from = arrays[i].from, .info = infos[i], .lossy_before = {}});
    as_before[i] ? plan_as_before(i) : plan_anew(i);
  }
  std::ranges::stable_sort(new_chunks_, {}, [](const NewChunk& chunk) {
    return std::pair(chunk.first + chunk.samples, chunk.array);
  });
}

void Rewrite::add(std::uint32_t number, How how, std::int64_t first, std::int64_t samples) {
  RewrittenArray& array = arrays_[number];
  ++(how == How::Pack ? array.packs_again : array.copied);
  new_chunks_.push_back({number, how, first, samples});
  if (how != How::Pack || is_exact(array.info.codec)) return;
  for (std::size_t f = 0; f < files_.size() && !array.lossy_before; ++f) {
    const CodecSpec& before = files_[f].arrays()[array.from].codec;
    const bool touched = starts_[f] < first + samples && starts_[f + 1] > first;
    if (touched && !is_exact(before)) array.lossy_before = before;
  }
}

// Chunk by chunk as they lie; those of a file with another codec are packed.
void Rewrite::plan_as_before(std::uint32_t number) {
  const RewrittenArray& array = arrays_[number];
  for (std::uint32_t f = 0; f < files_.size(); ++f) {
    const bool same = files_[f].arrays()[array.from].codec == array.info.codec;
    const std::span<const ChunkInfo> chunks = files_[f].chunks(array.from);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      add(number, same ? How::Copy : How::Pack, starts_[f] + chunks[c].first, chunks[c].samples);
    }
  }
}

// Full chunks from the first sample on.
void Rewrite::plan_anew(std::uint32_t number) {
  const std::int64_t full = arrays_[number].info.samples_per_chunk;
  for (std::int64_t first = 0; first < samples_; first += full) {
    const std::int64_t samples = std::min(full, samples_ - first);
    add(number, how_to_slice(number, first, samples), first, samples);
  }
}

// Rows can be put together anew where each has its bytes alone, and the codec stays.
Rewrite::How Rewrite::how_to_slice(std::uint32_t number, std::int64_t first,
                                   std::int64_t samples) const {
  const RewrittenArray& array = arrays_[number];
  if (!rows_independent(array.info.codec, with_samples(samples, array.info.shape)))
    return How::Pack;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const bool touched = starts_[f] < first + samples && starts_[f + 1] > first;
    if (!touched) continue;
    if (files_[f].arrays()[array.from].codec != array.info.codec) return How::Pack;
    const std::int64_t from = std::max(first - starts_[f], std::int64_t{0});
    const std::int64_t to = std::min(first + samples, starts_[f + 1]) - starts_[f];
    const std::span<const ChunkInfo> chunks = files_[f].chunks(array.from);
    const auto [begin, end] = chunks_in(chunks, from, to - from);
    for (std::size_t c = begin; c < end; ++c) {
      const Shape shape = with_samples(chunks[c].samples, array.info.shape);
      if (!rows_independent(array.info.codec, shape)) return How::Pack;
    }
  }
  return How::Slice;
}

}  // namespace tuckfold
