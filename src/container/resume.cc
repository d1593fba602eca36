// Reads an unfinished file record by record up to the first invalid one.
#include "container/resume.h"

#include <algorithm>
#include <bit>

#include "base/fail.h"
#include "base/fill.h"
#include "base/io/file.h"
#include "container/frame.h"
#include "container/shards.h"

namespace tuckfold {
namespace {

std::optional<CheckedChunk> whole_chunk(const std::optional<Record>& record, const Schema& schema) {
  if (!record) return {};
  try {
    return check_chunk(*record, schema);
  } catch (const Error&) {
    return {};
  }
}

std::span<const ArrayInfo> shown(const Schema& schema) {
  return std::span(schema.arrays).first(count_shown(schema.arrays));
}

}  // namespace

std::string difference(const Schema& then, const Schema& now) {
  const auto changed = [](std::string_view what, const auto& before, const auto& after) {
    return fmt::format("{}: {} then, {} now", what, before, after);
  };
  const auto names = [](const Schema& schema) {
    std::vector<std::string> all;
    for (const ArrayInfo& array : shown(schema)) all.push_back(array.name);
    return fmt::format("{}", fmt::join(all, ", "));
  };
  const auto fill = [](const ArrayInfo& array) {
    std::vector<std::string> all;
    for (const FillValue& value : array.fill) all.push_back(to_string(array.dtype, value));
    return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
  };
  if (names(then) != names(now)) return changed("the arrays", names(then), names(now));
  for (std::size_t i = 0; i < shown(now).size(); ++i) {
    const ArrayInfo &a = then.arrays[i], &b = now.arrays[i];
    const auto of = [&](std::string_view what) {
      return fmt::format("the {} of '{}'", what, a.name);
    };
    if (a.dtype != b.dtype) return changed(of("dtype"), to_string(a.dtype), to_string(b.dtype));
    if (a.shape != b.shape) return changed(of("shape"), to_string(a.shape), to_string(b.shape));
    if (a.codec != b.codec) return changed(of("codec"), a.codec.print(), b.codec.print());
    if (a.samples_per_chunk != b.samples_per_chunk) {
      return changed(of("samples per chunk"), a.samples_per_chunk, b.samples_per_chunk);
    }
    if (a.fill != b.fill) return changed(of("fill values"), fill(a), fill(b));
  }
  return "the metadata";
}

Begun begun_with(const WriteOptions& options) {
  Begun begun{.origin = options.origin, .seed = options.seed};
  for (std::size_t i = 0; i < options.checks.size(); ++i) {
    if (!options.checks[i].max_error) continue;
    const auto bound = std::bit_cast<std::uint64_t>(*options.checks[i].max_error);
    begun.origin.values = (begun.origin.values + i + 1) * 0x100000001b3 ^ bound;
  }
  return begun;
}

std::string difference(const Begun& then, const Begun& now) {
  const Origin &a = then.origin, &b = now.origin;
  if (a.samples != b.samples) {
    return fmt::format("the inputs: {} samples then, {} now", a.samples, b.samples);
  }
  if (a.first != b.first) {
    return fmt::format("the shards: from sample {} then, {} now", a.first, b.first);
  }
  if (a.values != b.values) return "the values of the inputs, or a bound (max_error)";
  if (a.files != b.files) return "the size or time of change of an input file";
  if (then.seed != now.seed) {
    return fmt::format("the seed: {} then, {} now", then.seed, now.seed);
  }
  return "";
}

Kept find_kept(const std::string& path, const Schema& schema, const Begun& begun) {
  const MappedFile file(path, "resume");
  const auto differs = [&](std::string_view what) {
    invalid(
        "[resume] '{}' was begun with something else. What differs is {}; give the same, or remove "
        "the file to start over",
        path, what);
  };
  if (is_manifest(file.bytes())) differs("the shards: some then, none now");
  // A file that has its trailer, but not yet its name, no longer records what it was begun with.
  const std::optional<Begun> then = get_begun(file.bytes());
  std::optional<Record> record = record_at(file.bytes(), kFirstRecordAt);
  if (!then || !record || !record->is(RecordKind::Schema) || !record->is_whole()) return {};
  check_start(file.bytes(), path);
  const std::string_view text = text_of(record->payload);
  if (text != schema_text(schema)) differs(difference(parse_schema(text, path), schema));
  if (const std::string what = difference(*then, begun); !what.empty()) differs(what);
  // Records are in the order of their last samples: where all arrays have the same number of
  // samples, the file up to there is what a writer has written at that sample.
  Kept kept{.entries = {}, .samples = 0, .end = record->end()};
  std::size_t kept_entries = 0;
  std::vector<std::uint64_t> samples(schema.arrays.size());
  record = record_at(file.bytes(), record->end());
  while (const std::optional<CheckedChunk> chunk = whole_chunk(record, schema)) {
    const ChunkHead& head = chunk->head;
    if (head.number != samples[head.array] || record->end() > file.bytes().size()) break;
    kept.entries.push_back({.array = head.array,
                            .samples = head.samples,
                            .first = head.number,
                            .offset = record->offset,
                            .payload_bytes = record->payload.size(),
                            .skip = 0,
                            .crc = packed_crc_of(chunk->frame)});
    samples[head.array] += head.samples;
    if (std::all_of(samples.begin(), samples.end(),
                    [&](std::uint64_t count) { return count == samples[0]; })) {
      kept.samples = samples[0];
      kept.end = record->end();
      kept_entries = kept.entries.size();
    }
    record = record_at(file.bytes(), record->end());
  }
  kept.entries.resize(kept_entries);
  return kept;
}

}  // namespace tuckfold
