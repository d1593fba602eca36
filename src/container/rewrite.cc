// Plans what happens to each chunk from the files' indexes alone; rewrite_work.cc does it.
#include "container/rewrite.h"

#include <algorithm>
#include <iterator>

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

namespace {

// Whether an array keeps the codec and the chunks of the first file.
bool stays(const RewriteArray& array, const FileReader& file) {
  const ArrayInfo& old = file.arrays()[array.from];
  return array.info.codec == old.codec && (array.info.samples_per_chunk == 0 ||
                                           array.info.samples_per_chunk == old.samples_per_chunk);
}

}  // namespace

Rewrite::Rewrite(std::span<const FileReader> files, std::vector<RewriteArray> arrays,
                 const std::optional<SampleRange>& range)
    : files_(files) {
  for (const FileReader& file : files) {
    starts_.push_back(end_);
    end_ += file.samples();
  }
  starts_.push_back(end_);
  if (range) {
    first_ = range->first;
    end_ = range->first + range->samples;
  }
  std::vector<ArrayInfo> infos;
  std::vector<bool> as_before;
  for (const RewriteArray& array : arrays) {
    ArrayInfo& info = infos.emplace_back(array.info);
    as_before.push_back(stays(array, files.front()));
    if (info.samples_per_chunk == 0) {
      info.samples_per_chunk = files.front().arrays()[array.from].samples_per_chunk;
    }
    for (std::size_t f = 0; f < files.size() && as_before.back(); ++f) {
      for (const ChunkInfo& chunk : files[f].chunks(array.from)) {
        info.samples_per_chunk = std::max(info.samples_per_chunk, chunk.samples);
      }
    }
  }
  check_arrays(infos);
  schema_ = infos;
  add_masks(schema_);
  for (std::uint32_t i = 0; i < arrays.size(); ++i) {
    arrays_.push_back({.from = arrays[i].from, .info = infos[i], .lossy_before = {}});
    as_before[i] ? plan_as_before(i) : plan_anew(i);
  }
  std::ranges::stable_sort(new_chunks_, {}, [](const NewChunk& chunk) {
    return std::pair(chunk.first + chunk.samples, chunk.array);
  });
}

template <class Visit>
bool Rewrite::for_chunks(std::uint32_t number, std::int64_t first, std::int64_t samples,
                         const Visit& visit) const {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::int64_t from = std::max(first, starts_[f]) - starts_[f];
    const std::int64_t to = std::min(first + samples, starts_[f + 1]) - starts_[f];
    if (from >= to) continue;
    const auto [begin, end] = chunks_in(files_[f].chunks(arrays_[number].from), from, to - from);
    for (std::size_t c = begin; c < end; ++c) {
      if (!visit(f, c)) return false;
    }
  }
  return true;
}

void Rewrite::add(std::uint32_t number, How how, std::int64_t first, std::int64_t samples) {
  RewrittenArray& array = arrays_[number];
  ++(how == How::Pack ? array.packs_again : array.copied);
  new_chunks_.push_back({number, how, first, samples});
  if (how != How::Pack || array.lossy_before || is_exact(array.info.codec)) return;
  for_chunks(number, first, samples, [&](std::size_t f, std::size_t c) {
    const CodecSpec& before = files_[f].chunk_codec(array.from, c);
    if (!is_exact(before)) array.lossy_before = before;
    return !array.lossy_before;
  });
}

// Copies chunk by chunk; chunks of a file with another codec are packed again. If the range cuts a
// chunk, its rows are packed: an exact codec loses nothing, others keep what they can.
void Rewrite::plan_as_before(std::uint32_t number) {
  const RewrittenArray& array = arrays_[number];
  for_chunks(number, first_, end_ - first_, [&](std::size_t f, std::size_t c) {
    const ChunkInfo& chunk = files_[f].chunks(array.from)[c];
    const std::int64_t from = std::max(first_, starts_[f] + chunk.first);
    const std::int64_t to = std::min(end_, starts_[f] + chunk.first + chunk.samples);
    How how = can_copy(number, f, c) ? How::Copy : How::Pack;
    if (how == How::Copy && to - from < chunk.samples) {
      how = is_exact(array.info.codec) ? How::Pack : How::Slice;
    }
    add(number, how, from, to - from);
    return true;
  });
}

// Full chunks from the first sample on.
void Rewrite::plan_anew(std::uint32_t number) {
  const std::int64_t full = arrays_[number].info.samples_per_chunk;
  for (std::int64_t first = first_; first < end_; first += full) {
    const std::int64_t samples = std::min(full, end_ - first);
    add(number, how_to_slice(number, first, samples), first, samples);
  }
}

// Whether packed bytes may stay: the codec does, and so does every fill value that has another one
// packed in its place.
bool Rewrite::can_copy(std::uint32_t number, std::size_t file, std::size_t chunk) const {
  const RewrittenArray& array = arrays_[number];
  const FileReader& from = files_[file];
  return from.chunk_codec(array.from, chunk) == array.info.codec &&
         std::ranges::all_of(from.arrays()[array.from].fill, [&](const FillValue& value) {
           return std::ranges::count(array.info.fill, value) > 0;
         });
}

// Rows can be combined anew if the codec stays and stores each row's bytes separately.
Rewrite::How Rewrite::how_to_slice(std::uint32_t number, std::int64_t first,
                                   std::int64_t samples) const {
  const RewrittenArray& array = arrays_[number];
  const auto independent = [&](std::int64_t rows) {
    return rows_independent(array.info.codec, with_samples(rows, array.info.shape));
  };
  if (!independent(samples)) return How::Pack;
  const bool all = for_chunks(number, first, samples, [&](std::size_t f, std::size_t c) {
    return can_copy(number, f, c) && independent(files_[f].chunks(array.from)[c].samples);
  });
  return all ? How::Slice : How::Pack;
}

std::vector<SampleRange> cut_evenly(std::span<const FileReader> files,
                                    std::span<const RewriteArray> arrays, int ranges) {
  std::int64_t samples = 0;
  std::optional<std::vector<std::int64_t>> borders;  // of all arrays so far that stay
  for (const FileReader& file : files) samples += file.samples();
  for (const RewriteArray& array : arrays) {
    if (!stays(array, files.front())) continue;
    std::vector<std::int64_t> own, both;
    std::int64_t start = 0;
    for (const FileReader& file : files) {
      for (const ChunkInfo& chunk : file.chunks(array.from)) own.push_back(start + chunk.first);
      start += file.samples();
    }
    if (borders) std::ranges::set_intersection(*borders, own, std::back_inserter(both));
    borders = borders ? std::move(both) : std::move(own);
  }
  std::vector<SampleRange> cut;
  std::int64_t first = 0;
  for (int i = 1; i <= ranges; ++i) {
    // No range is empty, as long as there are samples for all.
    const std::int64_t least = std::min(first + 1, samples);
    const std::int64_t most = std::max(least, samples - (ranges - i));
    std::int64_t end = std::clamp(samples * i / ranges, least, most);
    if (borders && i < ranges) {
      const auto after = std::ranges::lower_bound(*borders, end);
      const std::int64_t above = after == borders->end() ? samples : *after;
      const std::int64_t below = after == borders->begin() ? 0 : *(after - 1);
      const std::int64_t nearest = above - end < end - below ? above : below;
      if (nearest >= least && nearest <= most) end = nearest;
    }
    cut.push_back({first, end - first});
    first = end;
  }
  return cut;
}

}  // namespace tuckfold
