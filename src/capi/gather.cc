#include "capi/gather.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/registry.h"
#include "container/format.h"

namespace tuckfold::capi {
namespace {

struct Wanted {
  std::int64_t sample, row;  // of the output
};

class Gather {
 public:
  Gather(const FileReader& reader, std::size_t array, std::span<const std::int64_t> samples,
         const TensorView& out)
      : reader_(reader), array_(array), info_(reader.arrays()[array]), out_(out) {
    wanted_.reserve(samples.size());
    for (const std::int64_t sample : samples) wanted_.push_back({sample, std::ssize(wanted_)});
    std::ranges::stable_sort(wanted_, {}, &Wanted::sample);
    find_tasks();
  }

  void run(int threads) {
    if (tasks_.size() == 1) return read(tasks_.front(), threads);
    std::exception_ptr error;  // of the first task that has one
    std::size_t error_task = tasks_.size();
    std::mutex mutex;
    parallel_for(std::ssize(tasks_), thread_count(threads),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (auto i = static_cast<std::size_t>(begin); std::cmp_less(i, end); ++i) {
                     try {
                       read(tasks_[i], 1);
                     } catch (...) {
                       const std::lock_guard lock(mutex);
                       if (i < error_task) error = std::current_exception();
                       error_task = std::min(error_task, i);
                     }
                   }
                 });
    if (error) std::rethrow_exception(error);
  }

 private:
  struct Task {
    std::size_t begin, end;  // of wanted_; all in one chunk
  };

  // Samples that are unpacked alone are tasks of their own, others share one with their chunk.
  void find_tasks() {
    const std::span<const ChunkInfo> chunks = reader_.chunks(array_);
    const bool masked = reader_.mask(array_).has_value();
    for (std::size_t at = 0; at < wanted_.size();) {
      const auto after =
          std::ranges::upper_bound(chunks, wanted_[at].sample, {}, &ChunkInfo::first);
      const auto number = static_cast<std::size_t>(after - chunks.begin()) - 1;
      const ChunkInfo& chunk = chunks[number];
      const bool alone = !masked && rows_independent(reader_.chunk_codec(array_, number),
                                                     with_samples(chunk.samples, info_.shape));
      std::size_t end = at + 1;
      while (!alone && end < wanted_.size() && wanted_[end].sample < chunk.first + chunk.samples) {
        ++end;
      }
      tasks_.push_back({at, end});
      at = end;
    }
  }

  void read(const Task& task, int threads) const {
    const Wanted& first = wanted_[task.begin];
    const std::int64_t count = wanted_[task.end - 1].sample - first.sample + 1;
    bool in_order = std::cmp_equal(count, task.end - task.begin);
    for (std::size_t i = task.begin; in_order && i < task.end; ++i) {
      const auto step = static_cast<std::int64_t>(i - task.begin);
      in_order = wanted_[i].sample == first.sample + step && wanted_[i].row == first.row + step;
    }
    if (in_order) {
      return reader_.read(array_, first.sample, count, rows_of(out_, first.row, count), threads);
    }
    const std::size_t each = info_.sample_bytes();
    const auto room =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(count) * each);
    reader_.read(array_, first.sample, count,
                 TensorView(room.get(), info_.dtype, with_samples(count, info_.shape)), threads);
    for (std::size_t i = task.begin; i < task.end; ++i) {
      const FlatWriter writer(rows_of(out_, wanted_[i].row, 1));
      const auto from = static_cast<std::size_t>(wanted_[i].sample - first.sample) * each;
      writer.scatter_bytes(0, writer.elems(), room.get() + from);
    }
  }

  const FileReader& reader_;
  std::size_t array_;
  const ArrayInfo& info_;
  const TensorView& out_;
  std::vector<Wanted> wanted_;  // sorted
  std::vector<Task> tasks_;
};

}  // namespace

void gather(const FileReader& reader, std::size_t array, std::span<const std::int64_t> samples,
            const TensorView& out, int threads) {
  if (array >= reader.arrays().size()) {
    invalid("[read] there are {} arrays, got number {}", reader.arrays().size(), array);
  }
  if (threads < 0) invalid("[read] threads must be 0 or more, got {}", threads);
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= reader.samples()) {
      invalid("[read] samples must be in 0..{}, got {}", reader.samples() - 1, sample);
    }
  }
  const ArrayInfo& info = reader.arrays()[array];
  const Shape shape = with_samples(std::ssize(samples), info.shape);
  if (out.device != Device::Cpu) {
    fail(Errc::Unsupported, "[read] samples are read to the CPU; copy them to the device");
  }
  if (out.dtype != info.dtype || out.shape != shape || out.strides.rank() != shape.rank()) {
    invalid("[read] '{}' is {} {}, the output is {} {}", info.name, to_string(info.dtype),
            to_string(shape), to_string(out.dtype), to_string(out.shape));
  }
  if (samples.empty()) return;
  if (out.data == nullptr && shape.elems() > 0) invalid("[read] the output has no data");
  Gather(reader, array, samples, out).run(threads);
}

}  // namespace tuckfold::capi
