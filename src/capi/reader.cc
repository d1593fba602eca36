// Files in C: reading.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fill.h"
#include "base/json.h"
#include "capi/handles.h"
#include "container/shard_files.h"
#include "container/shards.h"
#include "container/trailing_data.h"

using namespace tuckfold;        // NOLINT(google-build-using-namespace)
using namespace tuckfold::capi;  // NOLINT(google-build-using-namespace)

namespace {

std::string array_json(const FileReader& reader, std::size_t number) {
  const ArrayInfo& array = reader.arrays()[number];
  std::uint64_t bytes = 0;
  for (const ChunkInfo& chunk : reader.chunks(number)) bytes += chunk.frame_bytes;
  if (const std::optional<std::size_t> mask = reader.mask(number)) {
    for (const ChunkInfo& chunk : reader.chunks(*mask)) bytes += chunk.frame_bytes;
  }
  std::vector<std::string> fill;
  for (const FillValue& value : array.fill) {
    fill.push_back(json_string(to_string(array.dtype, value)));
  }
  std::vector<std::string> codecs;
  std::uint32_t file = UINT32_MAX;
  for (std::size_t i = 0; i < reader.chunks(number).size(); ++i) {
    if (reader.chunks(number)[i].file == file) continue;  // a file has one
    file = reader.chunks(number)[i].file;
    std::string codec = json_string(reader.chunk_codec(number, i).print());
    if (std::ranges::find(codecs, codec) == codecs.end()) codecs.push_back(std::move(codec));
  }
  return fmt::format(R"({{"name": {}, "dtype": "{}", "shape": [{}], "codec": {}, )"
                     R"("samples_per_chunk": {}, "fill": [{}], "chunks": {}, "packed_bytes": {}, )"
                     R"("packed_alone": {}, "codecs": [{}]}})",
                     json_string(array.name), to_string(array.dtype), fmt::join(array.shape, ", "),
                     json_string(array.codec.print()), array.samples_per_chunk,
                     fmt::join(fill, ", "), reader.chunks(number).size(), bytes,
                     reader.is_packed_alone(number), fmt::join(codecs, ", "));
}

std::string reader_json(const FileReader& reader) {
  std::vector<std::string> arrays, warnings;
  for (std::size_t i = 0; i < reader.arrays().size(); ++i) arrays.push_back(array_json(reader, i));
  for (const TrailingData& trailing : reader.trailing_data()) {
    warnings.push_back(json_string(to_string(trailing)));
  }
  return fmt::format(
      R"({{"samples": {}, "bytes": {}, "checksum": "{:016x}", "arrays": [{}], "metadata": {}, )"
      R"("warnings": [{}]}})",
      reader.samples(), reader.file_bytes(), reader.checksum(), fmt::join(arrays, ", "),
      reader.metadata(), fmt::join(warnings, ", "));
}

}  // namespace

struct tuckfold_reader {
  std::string path;
  FileReader reader;
  std::string json;

  // With more shards than are mapped at a time, reading takes a lock that may be held for good in
  // the child of a fork. The child opens the files again.
  pid_t opened_by = ::getpid();
  bool takes_locks = false;
  mutable std::mutex again_mutex{};
  mutable std::unique_ptr<FileReader> again{};
  mutable pid_t again_by = 0;

  const FileReader& get() const {
    if (!takes_locks || ::getpid() == opened_by) return reader;
    // Only this process's threads have locked it: its parent does not open anything again.
    const std::lock_guard lock(again_mutex);
    if (again_by != ::getpid()) {
      auto opened = std::make_unique<FileReader>(path);
      if (reader_json(*opened) != json) {
        fail(Errc::CorruptData, "[read] '{}' has been replaced since it was opened; open it again",
             path);
      }
      [[maybe_unused]] FileReader* parents = again.release();  // whose locks may be held
      again = std::move(opened);
      again_by = ::getpid();
    }
    return *again;
  }
};

tuckfold_status tuckfold_reader_open(const char* path, int32_t strict, tuckfold_reader** reader) {
  return guarded([&] {
    tuckfold_reader*& to = given("open", "the place for the reader", reader);
    to = nullptr;
    const std::string name = &given("open", "the path", path);
    FileReader opened(name, {.strict = strict != 0});
    std::string json = reader_json(opened);
    auto made = std::unique_ptr<tuckfold_reader>(
        new tuckfold_reader{.path = name, .reader = std::move(opened), .json = std::move(json)});
    made->takes_locks = shards_at(name).size() > ShardFiles::kMostMapped;
    to = made.release();
  });
}

void tuckfold_reader_close(tuckfold_reader* reader) {
  if (reader == nullptr) return;
  // Locks of a parent's may be held: its memory stays.
  if (reader->takes_locks && ::getpid() != reader->opened_by) return;
  delete reader;
}

const char* tuckfold_reader_json(const tuckfold_reader* reader) {
  return reader == nullptr ? "{}" : reader->json.c_str();
}

tuckfold_status tuckfold_reader_read(const tuckfold_reader* reader, size_t array, int64_t first,
                                     int64_t count, const tuckfold_tensor* out, int32_t threads) {
  return guarded([&] {
    const FileReader& from = given("read", "the reader", reader).get();
    if (array >= from.arrays().size()) {  // a mask is no array of the file
      invalid("[read] there are {} arrays, got number {}", from.arrays().size(), array);
    }
    const TensorView view = view_of("read", out);
    if (view.data == nullptr && view.shape.elems() > 0) invalid("[read] the output has no data");
    from.read(array, first, count, view, threads);
  });
}

tuckfold_status tuckfold_reader_gather(const tuckfold_reader* reader, size_t array,
                                       const int64_t* samples, size_t count,
                                       const tuckfold_tensor* out, int32_t threads) {
  return guarded([&] {
    const FileReader& from = given("read", "the reader", reader).get();
    if (count > 0) given("read", "the samples", samples);
    from.gather(array, {samples, count}, view_of("read", out), threads);
  });
}

tuckfold_status tuckfold_reader_gather_images(const tuckfold_reader* reader, size_t array,
                                              const int64_t* samples, size_t count,
                                              const tuckfold_window* windows,
                                              const tuckfold_image_options* options,
                                              const tuckfold_tensor* out, int32_t threads) {
  return guarded([&] {
    const FileReader& from = given("read", "the reader", reader).get();
    if (count > 0) given("read", "the samples", samples);
    const tuckfold_image_options& given_options = given("read", "the options", options);
    if (given_options.struct_bytes != sizeof(tuckfold_image_options)) {
      invalid("[read] struct_bytes must be {}, got {}", sizeof(tuckfold_image_options),
              given_options.struct_bytes);
    }
    ImageOptions image{.channels_last = given_options.channels_last != 0};
    if (const float* scale = given_options.scale) image.scale = {scale, scale + options->channels};
    if (const float* add = given_options.add) image.add = {add, add + options->channels};
    std::vector<Window> parts;
    for (std::size_t i = 0; windows != nullptr && i < count; ++i) {
      parts.push_back(
          {.top = windows[i].top, .left = windows[i].left, .mirrored = windows[i].mirrored});
    }
    from.gather_images(array, {samples, count}, parts, image, view_of("read", out), threads);
  });
}

tuckfold_status tuckfold_reader_gather_packed(const tuckfold_reader* reader, size_t array,
                                              const int64_t* samples, size_t count, void* room,
                                              size_t room_bytes, int32_t* places,
                                              tuckfold_packed_part* parts, size_t most_parts,
                                              size_t* found, size_t* needed, int32_t threads) {
  thread_local std::vector<std::string> texts;
  return guarded([&] {
    const FileReader& from = given("read", "the reader", reader).get();
    if (count > 0) given("read", "the samples", samples);
    if (count > 0) given("read", "the room for places", places);
    if (room_bytes > 0) given("read", "the room", static_cast<std::byte*>(room));
    if (most_parts > 0) given("read", "the room for parts", parts);
    std::size_t& part_count = given("read", "the place for the number of parts", found);
    std::size_t& bytes = given("read", "the place for the number of bytes", needed);
    const PackedBatch batch = from.gather_packed(
        array, {samples, count}, {static_cast<std::byte*>(room), room_bytes}, threads);
    part_count = batch.parts.size();
    bytes = batch.bytes;
    if (part_count > most_parts || bytes > room_bytes) return;
    texts.clear();
    for (const PackedBatch::Part& part : batch.parts) texts.push_back(part.codec.print());
    for (std::size_t i = 0; i < part_count; ++i) {
      parts[i] = {.codec = texts[i].c_str(),
                  .samples = batch.parts[i].samples,
                  .offset = batch.parts[i].offset,
                  .bytes = batch.parts[i].bytes};
    }
    std::ranges::copy(batch.places, places);
  });
}

tuckfold_status tuckfold_reader_chunks(const tuckfold_reader* reader, size_t array, int32_t mask,
                                       tuckfold_chunk* chunks, size_t room, size_t* count) {
  return guarded([&] {
    const FileReader& from = given("read", "the reader", reader).get();
    std::size_t& found = given("read", "the place for the count", count);
    const std::optional<std::size_t> mask_of = from.mask(array);
    found = 0;
    if (mask != 0 && !mask_of) return;
    const std::span<const ChunkInfo> all = from.chunks(mask != 0 ? *mask_of : array);
    found = all.size();
    if (room > 0) given("read", "the room for chunks", chunks);
    for (std::size_t i = 0; i < std::min(room, all.size()); ++i) {
      chunks[i] = {.first = all[i].first,
                   .samples = all[i].samples,
                   .file = all[i].file,
                   .offset = all[i].offset,
                   .bytes = all[i].frame_bytes + kRecordHeadBytes + kChunkHeadBytes};
    }
  });
}
