// A candidate for butterflies of 4096 features, in one pass. A feature's number has three digits of four bits; four
// stages mix one digit, and are 256 products with 16 x 16 each. A cluster of two blocks has a tile of samples, as
// many as are sixteen bytes, and a warp the matrices of one digit of 512 features, in registers, while tiles pass by:
//
//   warps 0 to 3:   load x, mix the lowest digit
//   warps 4 to 7:   mix the middle digit, send half of the features to the other block
//   warps 8 to 11:  mix the highest digit, store y
//
// Warps wait for those that give them something, or take it from them, and never for all. A block has features
// of eight highest digits first, of eight middle digits in the end: 128 neighbours, whole lines of y.
#pragma once

#include "base/cuda/async.cuh"
#include "base/cuda/cluster.cuh"
#include "base/cuda/signal.cuh"
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured::pipeline {

constexpr int kRanks = 2, kOfRole = 4, kThreads = 3 * kOfRole * 32;
constexpr int kFeatures = 4096;
constexpr int kPartBytes = 512 * 16;  // of a warp
constexpr int kTileBytes = kOfRole * kPartBytes;
constexpr int kDigitBytes = 256 * 16;  // of all features with the same highest digit

template <class T>
constexpr int kSamples = 16 / sizeof(T);  // of a tile

// The whole work, with other stores or an early start of the next kernel, or less of it: what is left out shows
// where time goes. Compilers must not see that it never happens, or they would leave out more.
enum class Way { Whole, PlainStores, NextEarly, NoStores, NoLoads, Neither };
constexpr bool has_loads(Way way) { return way != Way::NoLoads && way != Way::Neither; }
constexpr bool has_stores(Way way) { return way != Way::NoStores && way != Way::Neither; }

template <class T>
struct Args {
  CudaButterfly s;
  const T *x, *twiddle, *bias;
  T* y;
  std::int64_t samples;
  bool whole_x, whole_y, whole_bias;  // whether rows are whole pieces of sixteen bytes
};

// Places for tiles in shared memory: kFirst in which they are loaded and go through the first two digits, kSecond
// for the third one. A load starts when the tile kBehind before the one that is computed has left its place.
template <int kFirst_, int kSecond_, int kBehind_>
struct Line {
  static constexpr int kFirst = kFirst_, kSecond = kSecond_, kBehind = kBehind_;
  static_assert(kBehind >= 1 && kBehind <= 2 && kBehind < kFirst);
  // done[] knows the parity of its phases alone: the next one of a place must not end before all have seen this one.
  static_assert(kSecond <= kFirst);

  struct alignas(16) Signals {
    cuda::ClusterSignal done[kFirst], sent[kSecond];
    cuda::Signal ready[kFirst][kOfRole], staged[kSecond];
  };
  static constexpr std::size_t kBytes = (kFirst + kSecond) * kTileBytes + sizeof(Signals);

  unsigned char* memory;
  Signals* signals;
  int rank, warp, lane;  // the warp of those of its role
  int first, step, tiles;

  __device__ TUCKFOLD_INLINE unsigned char* part(int turn) const {
    return memory + (turn % kFirst * kOfRole + warp) * kPartBytes;
  }
  __device__ TUCKFOLD_INLINE unsigned char* second(int turn) const {
    return memory + (kFirst + turn % kSecond) * kTileBytes;
  }
  __device__ TUCKFOLD_INLINE void init() const {
    for (int i = 0; i < kFirst; ++i) {
      signals->done[i].init(kRanks * kOfRole);
      for (int w = 0; w < kOfRole; ++w) signals->ready[i][w].init(1);
    }
    for (int i = 0; i < kSecond; ++i) {
      signals->sent[i].init(1);
      signals->staged[i].init(kOfRole);
    }
  }
  // All have taken what this turn's tile gave.
  __device__ TUCKFOLD_INLINE void wait_for_end(int turn) const {
    signals->done[turn % kFirst].wait(turn / kFirst % 2);
  }

  template <class Start>
  __device__ TUCKFOLD_INLINE void start_first(Start&& start) const {
    TUCKFOLD_UNROLL
    for (int i = 0; i < kFirst; ++i) {
      if (first + i * step < tiles) start(first + i * step, part(i));
      end_copies();
    }
  }
  template <class Start, class Work>
  __device__ TUCKFOLD_INLINE void run_first(Start&& start, Work&& work) const {
    constexpr int kAhead = kFirst - kBehind;
    int turn = 0;
#pragma unroll 1
    for (int tile = first; tile < tiles; tile += step, ++turn) {
      if (turn == 0) {
        wait_for_older_copies<kFirst - 1>();
      } else if (turn < kBehind) {
        wait_for_older_copies<kFirst - 2>();
      } else {
        wait_for_older_copies<kAhead - 1>();
      }
      __syncwarp();
      work(part(turn));
      __syncwarp();
      if (lane == 0) signals->ready[turn % kFirst][warp].arrive();
      if (turn < kBehind) continue;
      if (tile + kAhead * step < tiles) {
        wait_for_end(turn - kBehind);
        start(tile + kAhead * step, part(turn - kBehind));
      }
      end_copies();
    }
  }
  template <class Work>
  __device__ TUCKFOLD_INLINE void run_second(Work&& work) const {
    int turn = 0;
#pragma unroll 1
    for (int tile = first; tile < tiles; tile += step, ++turn) {
      unsigned char* from = part(turn);
      signals->ready[turn % kFirst][warp].wait(turn / kFirst % 2);
      work(from);
      if (turn >= kSecond) wait_for_end(turn - kSecond);
      cuda::before_send();
      __syncwarp();
      if (lane < 2 * kRanks) {
        const int to = lane % 2, digit = lane / 2;
        cuda::send(second(turn) + ((rank * kOfRole + warp) * 2 + digit) * (kDigitBytes / 2),
                   from + digit * kDigitBytes + to * (kDigitBytes / 2), kDigitBytes / 2,
                   signals->sent[turn % kSecond], to);
      }
    }
  }
  template <class Work>
  __device__ TUCKFOLD_INLINE void run_third(Work&& work) const {
    int turn = 0;
#pragma unroll 1
    for (int tile = first; tile < tiles; tile += step, ++turn) {
      cuda::ClusterSignal& sent = signals->sent[turn % kSecond];
      if (warp == 0 && lane == 0) sent.arrive_expecting(kTileBytes);
      sent.wait(turn / kSecond % 2);
      work(tile, second(turn), turn);
      cuda::before_send();
      __syncwarp();
      if (lane < kRanks) signals->done[turn % kFirst].arrive_in(lane);
    }
  }
};

// The place of this block and warp.
template <class L, class T>
__device__ TUCKFOLD_INLINE L line_of(const Args<T>& args, int& product) {
  const int blocks = static_cast<int>(gridDim.x) / args.s.stack;
  product = static_cast<int>(blockIdx.x) / blocks;
  const int block = static_cast<int>(blockIdx.x) % blocks;
  unsigned char* memory = cuda::shared_memory();
  return L{.memory = memory,
           .signals = reinterpret_cast<typename L::Signals*>(memory +
                                                             (L::kFirst + L::kSecond) * kTileBytes),
           .rank = block % kRanks,
           .warp = static_cast<int>(threadIdx.x) / 32 % kOfRole,
           .lane = static_cast<int>(threadIdx.x) % 32,
           .first = block / kRanks,
           .step = blocks / kRanks,
           .tiles = static_cast<int>((args.samples + kSamples<T> - 1) / kSamples<T>)};
}

// Starts the copies of 512 features of a tile, from `feature` on. Pieces of sixteen bytes go to place(sample,
// number of the piece).
template <class T, class Place>
__device__ TUCKFOLD_INLINE void start_part(const Args<T>& args, int feature, std::int64_t first,
                                           int lane, Place&& place) {
  constexpr int kEach = 16 / sizeof(T), kPieces = 512 / kEach, kTimes = kPieces / 32;
  const int in = args.s.in;
  if (args.whole_x && feature + 512 <= in && first + kSamples<T> <= args.samples) {
    const T* from = args.x + first * in + feature + lane * kEach;
    TUCKFOLD_UNROLL
    for (int sample = 0; sample < kSamples<T>; ++sample) {
      TUCKFOLD_UNROLL
      for (int i = 0; i < kTimes; ++i) {
        cuda::copy_async(place(sample, i * 32 + lane), from + i * 32 * kEach);
      }
      from += in;
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kSamples<T> * kTimes; ++i) {
    const int sample = i / kTimes, number = i % kTimes * 32 + lane, at = feature + number * kEach;
    const int has = first + sample < args.samples ? in - at : 0;
    unsigned char* to = place(sample, number);
    const T* from = args.x + (first + sample) * in + at;
    if (args.whole_x && has > 0) {
      cuda::copy_async(to, from);
    } else {
#pragma unroll 1
      for (int e = 0; e < kEach; ++e) reinterpret_cast<T*>(to)[e] = e < has ? from[e] : T{};
    }
  }
}

// How many clusters of a kernel run at the same time, asked once for a device.
struct AtOnce {
  int device = -1, clusters = 0;
};

template <class Kernel, class T>
void run(Kernel kernel, std::size_t bytes, const Args<T>& args, void* stream, AtOnce& at_once) {
  cuda::Grid grid{.blocks = kRanks, .threads = kThreads, .shared_bytes = bytes};
  const int device = cuda::ClusterDevice().number;
  if (device != at_once.device) {
    at_once = {device, std::max(cuda::clusters_at_once(kernel, kRanks, grid), 1)};
  }
  const std::int64_t wanted = cuda::blocks_for(args.samples, kSamples<T>);
  const std::int64_t share = std::max(at_once.clusters / args.s.stack, 1);
  grid.blocks = std::min(wanted, share) * kRanks * args.s.stack;
  grid.early = true;
  cuda::launch_clusters(kernel, kRanks, grid, stream, args);
}

template <class T>
Args<T> args_of(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
                const void* bias, void* y) {
  return Args<T>{.s = s,
                 .x = static_cast<const T*>(x),
                 .twiddle = static_cast<const T*>(twiddle),
                 .bias = static_cast<const T*>(bias),
                 .y = static_cast<T*>(y),
                 .samples = samples,
                 .whole_x = in_pieces(x, s.in, sizeof(T)),
                 .whole_y = in_pieces(y, s.out, sizeof(T)),
                 .whole_bias = bias != nullptr && in_pieces(bias, s.out, sizeof(T))};
}

}  // namespace tuckfold::structured::pipeline
