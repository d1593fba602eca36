// A kernel ladder: several variants of one kernel, each checked and timed beside a plain copy.
//
//   int main(int argc, char** argv) {
//     ladder::Ladder steps("copy", argc, argv);
//     const std::vector<float> values = ladder::noise(n);
//     ladder::Buffer<float> in(values), out(n);
//     steps.rung("a value a thread", 8 * n, [&](cudaStream_t stream) {
//       copy<<<blocks, 256, 0, stream>>>(in.data(), out.data(), n);
//     }, [&] { return ladder::largest_error(out, values); });
//     return steps.finish();
//   }
//
// A line of JSON for each rung goes to stdout. Times are the median of calls that each follow reads
// which fill the cache, as bench/gpu takes them: what a fill leaves there would be written back
// in the time of the call. Kernels of some ten microseconds are replayed instead: see replayed().
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ladder {

constexpr double kSheetBytesPerSecond = 4.8e12;  // the H200's memory by its data sheet
constexpr std::size_t kFlushBytes = 256'000'000;
constexpr std::size_t kCopyBytes = 4'000'000'000;
constexpr int kWarmUps = 3;

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Memory of the device. Poisoned bytes are NaN as f32, f16 and bf16.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t elems) : elems_(elems) {
    check(cudaMalloc(&data_, bytes()), "cudaMalloc");
    poison();
  }
  explicit Buffer(std::span<const T> values) : Buffer(values.size()) {
    check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(std::span<const T>(values)) {}
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::size_t size() const { return elems_; }
  std::size_t bytes() const { return elems_ * sizeof(T); }
  void poison() const { check(cudaMemset(data_, 0xFF, bytes()), "cudaMemset"); }
  std::vector<T> values() const {
    std::vector<T> result(elems_);
    check(cudaMemcpy(result.data(), data_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return result;
  }

 private:
  void* data_ = nullptr;
  std::size_t elems_;
};

// Values in -1 … 1 that are the same on every machine.
inline std::vector<float> noise(std::size_t elems) {
  std::vector<float> values(elems);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  }
  return values;
}

// Of the first elements beside those of a host reference; infinite where one is NaN.
template <class T>
double largest_error(const Buffer<T>& out, std::span<const T> expected) {
  const std::vector<T> got = out.values();
  double most = got.size() < expected.size() ? std::numeric_limits<double>::infinity() : 0;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    most = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(most, error);
  }
  return most;
}
template <class T>
double largest_error(const Buffer<T>& out, const std::vector<T>& expected) {
  return largest_error(out, std::span<const T>(expected));
}

static __global__ void read_all(const float4* from, float* never) {
  const float4 four = from[std::size_t{blockIdx.x} * 256 + threadIdx.x];
  if (four.x == 12345.0f) *never = four.y;
}

class Ladder {
 public:
  // Takes --rounds N, and --only TEXT: the rungs whose names hold it.
  Ladder(std::string name, int argc, char** argv) : name_(std::move(name)) {
    for (int i = 1; i + 1 < argc; i += 2) {
      if (std::string_view(argv[i]) == "--rounds") rounds_ = std::max(1, std::atoi(argv[i + 1]));
      if (std::string_view(argv[i]) == "--only") only_ = argv[i + 1];
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      std::fprintf(stderr, "%s: no GPU\n", name_.c_str());
      std::exit(1);
    }
    check(cudaStreamCreate(&stream_), "cudaStreamCreate");  // the default one cannot be captured
    check(cudaEventCreate(&start_), "cudaEventCreate");
    check(cudaEventCreate(&stop_), "cudaEventCreate");
    check(cudaMalloc(&flush_, kFlushBytes), "cudaMalloc");
    check(cudaMemset(flush_, 0, kFlushBytes), "cudaMemset");
    measure_copy();
  }
  Ladder(const Ladder&) = delete;
  Ladder& operator=(const Ladder&) = delete;
  ~Ladder() {
    cudaFree(flush_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }

  // Runs a variant that reads and writes `bytes` in all. `error` looks at its output, poisoned by
  // the caller's Buffer or by `error` of the rung before, and says how far from right it is.
  template <class Run, class Error>
  void rung(const char* what, double bytes, Run run, Error error, double allowed = 0) {
    if (!is_wanted(what)) return;
    run(stream_);
    const Checked checked = check_output(what, error, allowed);
    report(what, bytes, seconds(what, run), checked);
  }

  // The same for run(stream, i), where i from 0 to `calls` - 1 says which input to take: all in one graph, and
  // the time is a call's share of it. With more inputs than the cache holds each finds it full, without the launch
  // of a single call in its time, and with the start that a kernel has beside the end of the one before. Without
  // a check where `error` is nullptr.
  template <class Run, class Error>
  void replayed(const char* what, double bytes, int calls, Run run, Error error,
                double allowed = 0) {
    if (!is_wanted(what)) return;
    run(stream_, 0);
    const Checked checked = check_output(what, error, allowed);
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), what);
    for (int i = 0; i < calls; ++i) run(stream_, i);
    check(cudaStreamEndCapture(stream_, &graph), what);
    check(cudaGraphInstantiate(&replay, graph, 0), what);
    const double all = seconds(
        what, [&](cudaStream_t stream) { check(cudaGraphLaunch(replay, stream), what); }, false);
    check(cudaGraphExecDestroy(replay), what);
    check(cudaGraphDestroy(graph), what);
    report(what, bytes, all / calls, checked);
  }

  // The program's status: 1 where a rung was wrong.
  int finish() const { return all_right_ ? 0 : 1; }

 private:
  struct Checked {
    std::string error = "null", right = "null";  // as JSON
  };

  bool is_wanted(std::string_view what) const {
    return only_.empty() || what.find(only_) != std::string_view::npos;
  }

  template <class Error>
  Checked check_output(const char* what, Error error, double allowed) {
    check(cudaGetLastError(), what);
    check(cudaStreamSynchronize(stream_), what);
    if constexpr (std::is_null_pointer_v<Error>) {
      return {};
    } else {
      const double wrong = error();
      const bool right = wrong <= allowed;
      all_right_ = all_right_ && right;
      char text[32];
      std::snprintf(text, sizeof text, "%.6g", std::isfinite(wrong) ? wrong : -1.0);
      return {text, right ? "true" : "false"};
    }
  }

  void report(const char* what, double bytes, double seconds, const Checked& checked) const {
    const double speed = bytes / seconds;
    std::printf(
        "{\"ladder\": \"%s\", \"rung\": \"%s\", \"us\": %.6g, \"gbps\": %.6g, \"of_copy\": %.6g, "
        "\"of_sheet\": %.6g, \"copy_gbps\": %.6g, \"error\": %s, \"right\": %s}\n",
        name_.c_str(), what, seconds * 1e6, speed / 1e9, speed / copy_,
        speed / kSheetBytesPerSecond, copy_ / 1e9, checked.error.c_str(), checked.right.c_str());
    std::fflush(stdout);
  }

  template <class Run>
  double seconds(const char* what, Run run, bool flush = true) {
    for (int i = 1; i < kWarmUps; ++i) run(stream_);
    std::vector<float> times(static_cast<std::size_t>(rounds_));
    for (float& milliseconds : times) {
      if (flush) {
        read_all<<<kFlushBytes / (256 * sizeof(float4)), 256, 0, stream_>>>(
            static_cast<const float4*>(flush_), static_cast<float*>(flush_));
      }
      check(cudaEventRecord(start_, stream_), "cudaEventRecord");
      run(stream_);
      check(cudaEventRecord(stop_, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(stop_), what);
      check(cudaEventElapsedTime(&milliseconds, start_, stop_), what);
    }
    const auto middle = times.begin() + rounds_ / 2;
    std::nth_element(times.begin(), middle, times.end());
    return static_cast<double>(*middle) / 1e3;
  }

  void measure_copy() {
    const Buffer<std::byte> from(kCopyBytes), to(kCopyBytes);
    const auto run = [&](cudaStream_t stream) {
      check(cudaMemcpyAsync(to.data(), from.data(), kCopyBytes, cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync");
    };
    copy_ = 2.0 * static_cast<double>(kCopyBytes) / seconds("copy", run);
  }

  std::string name_, only_;
  int rounds_ = 25;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_, stop_;
  void* flush_ = nullptr;
  double copy_ = 0;
  bool all_right_ = true;
};

}  // namespace ladder
