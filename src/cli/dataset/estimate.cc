#include "cli/dataset/estimate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/io/bytes.h"
#include "cli/dataset/dataset.h"
#include "container/resume.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

constexpr std::uint64_t kProgramBytes = 14 << 20;  // code and libraries, touched by any run

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A codec that does not take so few samples leaves them to `raw`, as the writer does.
CodecSpec spec_for(const ArrayInfo& array, const Shape& shape) {
  try {
    layout(array.codec, array.dtype, shape);
    return array.codec;
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument || shape[0] == array.samples_per_chunk) throw;
    return CodecSpec::parse("raw");
  }
}

Shape chunk_shape(const ArrayInfo& array, std::int64_t samples) {
  return with_samples(std::min(samples, array.samples_per_chunk), array.shape);
}

struct Trial {
  double read_seconds, pack_seconds, packed;  // each for a byte of samples
};

// Reads a stretch from the middle, as batches are read, and packs samples from the whole array in
// chunks.
Trial try_array(const Source& source, std::size_t number, const ArrayInfo& array, std::int64_t most,
                int threads) {
  const Array part = trial_part_of(source, number, most);
  const std::int64_t count = part.shape[0], full = array.samples_per_chunk;
  const std::uint64_t each = array.sample_bytes();
  const HugeBuffer stretch(part.bytes());
  Trial trial{.read_seconds = seconds_of([&] {
                read_samples(source, number, (source.samples() - count) / 2, count, stretch.data(),
                             threads);
              })};
  const auto chunks = (count + full - 1) / full;
  std::atomic<std::uint64_t> packed = 0;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(chunks));
  trial.pack_seconds = seconds_of([&] {
    parallel_for(chunks, threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        try {
          const Shape shape = chunk_shape(array, count - i * full);
          const CodecSpec spec = spec_for(array, shape);
          std::vector<std::byte> frame(frame_bytes(spec, array.dtype, shape));
          const ConstTensorView view(
              part.values.data() + static_cast<std::uint64_t>(i * full) * each, array.dtype, shape);
          packed += write_frame(spec, view, frame, {.threads = chunks == 1 ? threads : 1});
        } catch (...) {
          errors[static_cast<std::size_t>(i)] = std::current_exception();
        }
      }
    });
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  const auto bytes = static_cast<double>(part.bytes());
  return {.read_seconds = trial.read_seconds / bytes,
          .pack_seconds = trial.pack_seconds / bytes,
          .packed = static_cast<double>(packed) / bytes};
}

// The memory of the writer while chunks of an array are read, packed and written. A mapped input is
// packed in place, and uses memory only for its pages.
std::uint64_t chunk_memory(const ArrayInfo& array, std::int64_t samples, bool in_place,
                           int threads) {
  const std::int64_t chunk = std::min(array.samples_per_chunk, samples);
  const std::uint64_t bytes = static_cast<std::uint64_t>(chunk) * array.sample_bytes();
  const std::int64_t chunks = (samples + chunk - 1) / chunk;
  const Lanes lanes = lanes_for(bytes, threads);
  const Shape shape = with_samples(chunk, array.shape);
  const CodecSpec spec = spec_for(array, shape);
  const auto at_once = static_cast<std::uint64_t>(std::min<std::int64_t>(lanes.workers, chunks));
  const auto held = static_cast<std::uint64_t>(std::min(lanes.window, chunks));
  // Values are looked at before a lossy codec packs them, so that all of a chunk is in memory.
  const std::uint64_t whole = at_once + (is_exact(array.codec) ? 0 : 1);
  const std::uint64_t pages =  // of the input that is mapped
      std::min(static_cast<std::uint64_t>(samples) * array.sample_bytes(),
               std::max(in_place ? whole * bytes : bytes, Bytes::kDropAfterBytes));
  return pages +
         at_once * ((in_place ? 0 : bytes) + layout(spec, array.dtype, shape).workspace_bytes) +
         held * frame_bytes(spec, array.dtype, shape);
}

// Inflated inputs are in memory, too; the search for codecs ends before the first chunk is packed.
std::uint64_t memory_of(const Source& source, std::span<const ArrayInfo> arrays,
                        std::int64_t trial_values, bool searched, int threads) {
  std::uint64_t chunks = 0, search = 0;
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    const ArrayInfo& array = arrays[a];
    chunks =
        std::max(chunks, chunk_memory(array, source.samples(), source.is_in_memory(a), threads));
    // The part, its pages of the file, the workspace, the packed bytes and the unpacked values.
    if (searched && array.shape.rank() >= 2) {
      const auto values =
          std::min<std::int64_t>(trial_values, source.samples() * array.shape.elems());
      search = std::max(search, 5 * static_cast<std::uint64_t>(values) * size_bytes(array.dtype));
    }
  }
  return kProgramBytes + Bytes::scratch_held() + std::max(chunks, search);
}

}  // namespace

Estimate estimate_packing(const Source& source, std::span<const ArrayInfo> arrays,
                          std::int64_t trial_values, bool searched, int threads) {
  std::vector<ArrayInfo> checked(arrays.begin(), arrays.end());
  check_arrays(checked);
  Estimate estimate{.memory_bytes = kProgramBytes};
  if (source.samples() == 0) return estimate;
  for (std::size_t a = 0; a < checked.size(); ++a) {
    const Trial trial = try_array(source, a, checked[a], trial_values, threads);
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(source.samples()) * checked[a].sample_bytes();
    estimate.bytes += bytes;
    estimate.packed_bytes += static_cast<std::uint64_t>(static_cast<double>(bytes) * trial.packed);
    estimate.seconds += static_cast<double>(bytes) * (trial.read_seconds + trial.pack_seconds);
  }
  estimate.memory_bytes = memory_of(source, checked, trial_values, searched, threads);
  return estimate;
}

}  // namespace tuckfold::cli
