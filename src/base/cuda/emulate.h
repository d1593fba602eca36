// CUDA kernels on the CPU, for tests: the text of a kernel compiles as C++, and every thread of a
// block is a fiber that runs until a barrier, a shuffle or a vote. Blocks run one after the other,
// in order; those of a cluster run together. This shows whether indices, arithmetic and barriers are
// right; not races, not speed.
//
// A barrier that not all threads reach, or that half a warp reaches, ends the program with a
// message.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ---- words --------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

#define TUCKFOLD_VECTOR(type, name, bytes)                         \
  struct alignas(bytes) name##2 {                                  \
    type x, y;                                                     \
  };                                                               \
  struct alignas(2 * (bytes)) name##4 {                            \
    type x, y, z, w;                                               \
  };                                                               \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
TUCKFOLD_VECTOR(float, float, 8)
TUCKFOLD_VECTOR(int, int, 8)
TUCKFOLD_VECTOR(unsigned, uint, 8)
TUCKFOLD_VECTOR(unsigned short, ushort, 4)
TUCKFOLD_VECTOR(unsigned char, uchar, 2)
#undef TUCKFOLD_VECTOR
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) double2 {
  double x, y;
};
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

// ---- fibers -------------------------------------------------------------------------------------

namespace tuckfold::cuda::emulate {

inline constexpr int kWarp = 32;
inline constexpr std::size_t kStackBytes = 256 << 10;

[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "emulated kernel: %s (block %u, thread %u)\n", what, blockIdx.x,
               threadIdx.x);
  std::abort();
}

struct Barrier {
  int wanted = 0, arrived = 0;
  unsigned turn = 0;
};

// A block, or the blocks of a cluster.
class Block {
 public:
  template <class Body>
  void run(int threads, std::size_t shared_bytes, Body& body, int ranks = 1) {
    body_ = [](void* given) { (*static_cast<Body*>(given))(); };
    given_ = &body;
    if (threads % kWarp != 0) give_up("threads must be whole warps");
    const int all = threads * ranks;
    fibers_.resize(std::max(fibers_.size(), static_cast<std::size_t>(all)));
    threads_ = threads;
    cluster_ = {.wanted = all};
    blocks_.assign(static_cast<std::size_t>(ranks), Barrier{.wanted = threads});
    warps_.assign(static_cast<std::size_t>(all / kWarp), Warp{.barrier = {.wanted = kWarp}});
    lines_ = shared_bytes / sizeof(Line) + 1;
    shared_.assign(lines_ * static_cast<std::size_t>(ranks), Line{});
    const unsigned first = blockIdx.x;
    for (int t = 0; t < all; ++t) start(t);
    for (int left = all; left > 0;) {
      moved_ = false;
      for (int t = 0; t < all; ++t) {
        Fiber& fiber = fibers_[static_cast<std::size_t>(t)];
        if (fiber.done) continue;
        current_ = t;
        threadIdx.x = static_cast<unsigned>(t % threads);
        blockIdx.x = first + static_cast<unsigned>(rank());
        enter(fiber);
        if (fiber.done) {
          --left;
          moved_ = true;
        }
      }
      if (!moved_) give_up("a barrier, a shuffle or a vote that not all threads reach");
    }
  }

  void wait_for_block() { wait(blocks_[static_cast<std::size_t>(rank())]); }
  void wait_for_cluster() { wait(cluster_); }
  void wait_for_warp() { wait(warp().barrier); }
  // Suspends one thread until another thread reports progress.
  template <class Met>
  void wait_until(Met&& met) {
    while (!met()) leave();
    moved();
  }
  void moved() { moved_ = true; }

  // Every lane's value, once all lanes of the warp have given theirs.
  template <class T>
  const T* exchange(T value) {
    static_assert(sizeof(T) <= 8);
    Warp& w = warp();
    const std::size_t side = w.exchanges[lane()]++ % 2;  // two, so that one barrier is enough
    T* values = reinterpret_cast<T*>(w.values[side]);
    values[lane()] = value;
    wait(w.barrier);
    return values;
  }
  int lane() const { return current_ % kWarp; }
  int rank() const { return current_ / threads_; }
  unsigned char* shared() { return shared(rank()); }
  unsigned char* shared(int rank) { return shared_[lines_ * static_cast<std::size_t>(rank)].bytes; }

 private:
  struct Warp {
    Barrier barrier;
    unsigned exchanges[kWarp] = {};
    alignas(8) unsigned char values[2][kWarp * 8];
  };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<unsigned char[]> stack;
    bool done = true;
    void* fake_stack = nullptr;
  };
  struct alignas(128) Line {
    unsigned char bytes[128];
  };

  Warp& warp() { return warps_[static_cast<std::size_t>(current_ / kWarp)]; }

  void wait(Barrier& barrier) {
    const unsigned turn = barrier.turn;
    moved_ = true;
    if (++barrier.arrived == barrier.wanted) {
      barrier.arrived = 0;
      ++barrier.turn;
      return;
    }
    while (barrier.turn == turn) leave();
    moved_ = true;
  }

  void start(int t) {
    Fiber& fiber = fibers_[static_cast<std::size_t>(t)];
    if (fiber.stack == nullptr) fiber.stack.reset(new unsigned char[kStackBytes]);
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack.get(), 0, kStackBytes};
    fiber.context.uc_link = nullptr;
    fiber.done = false;
    fiber.fake_stack = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Block::main), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
  static void main(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Block*>(std::uintptr_t{high} << 32 | low);
    self->arrived_in_fiber();
    self->body_(self->given_);
    self->fibers_[static_cast<std::size_t>(self->current_)].done = true;
    self->leave();
  }

  Fiber& current() { return fibers_[static_cast<std::size_t>(current_)]; }
#if defined(__SANITIZE_ADDRESS__)
  void enter(Fiber& fiber) {
    __sanitizer_start_switch_fiber(&fake_stack_, fiber.stack.get(), kStackBytes);
    swapcontext(&home_, &fiber.context);
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
    if (fiber.done) ASAN_UNPOISON_MEMORY_REGION(fiber.stack.get(), kStackBytes);
  }
  void leave() {
    Fiber& fiber = current();
    __sanitizer_start_switch_fiber(fiber.done ? nullptr : &fiber.fake_stack, home_stack_,
                                   home_bytes_);
    swapcontext(&fiber.context, &home_);
    __sanitizer_finish_switch_fiber(current().fake_stack, nullptr, nullptr);
  }
  void arrived_in_fiber() { __sanitizer_finish_switch_fiber(nullptr, &home_stack_, &home_bytes_); }
  void* fake_stack_ = nullptr;
  const void* home_stack_ = nullptr;
  std::size_t home_bytes_ = 0;
#else
  void enter(Fiber& fiber) { swapcontext(&home_, &fiber.context); }
  void leave() { swapcontext(&current().context, &home_); }
  void arrived_in_fiber() {}
#endif

  void (*body_)(void*) = nullptr;
  void* given_ = nullptr;
  int threads_ = 0, current_ = 0;
  bool moved_ = false;
  Barrier cluster_;
  std::vector<Barrier> blocks_;
  std::size_t lines_ = 0;  // of a block's shared memory
  ucontext_t home_{};
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<Line> shared_;
};

inline Block& block() {
  static Block the_block;
  return the_block;
}
inline unsigned char* shared_memory() { return block().shared(); }

template <class Body>
void run(std::int64_t blocks, int threads, std::size_t shared_bytes, Body&& body, int cluster = 1) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  gridDim = {.x = static_cast<unsigned>(blocks)};
  blockDim = {.x = static_cast<unsigned>(threads)};
  if (blocks % cluster != 0) give_up("blocks must be whole clusters");
  for (std::int64_t b = 0; b < blocks; b += cluster) {
    blockIdx = {.x = static_cast<unsigned>(b), .y = 0, .z = 0};
    block().run(threads, shared_bytes, body, cluster);
  }
}

}  // namespace tuckfold::cuda::emulate

// ---- barriers, shuffles, votes ------------------------------------------------------------------

inline void __syncthreads() { tuckfold::cuda::emulate::block().wait_for_block(); }
inline void __syncwarp(unsigned = ~0u) { tuckfold::cuda::emulate::block().wait_for_warp(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}

template <class T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
  auto& block = tuckfold::cuda::emulate::block();
  const int first = block.lane() & ~(width - 1);
  return block.exchange(value)[first + (from & (width - 1))];
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  auto& block = tuckfold::cuda::emulate::block();
  const int lane = block.lane();
  return block.exchange(value)[lane ^ mask];
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32) {
  auto& block = tuckfold::cuda::emulate::block();
  const int lane = block.lane(), from = lane - static_cast<int>(by);
  return block.exchange(value)[from < (lane & ~(width - 1)) ? lane : from];
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
  auto& block = tuckfold::cuda::emulate::block();
  const int lane = block.lane(), from = lane + static_cast<int>(by);
  return block.exchange(value)[from > (lane | (width - 1)) ? lane : from];
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const int* given = tuckfold::cuda::emulate::block().exchange(predicate);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= (given[i] != 0 ? 1u : 0u) << i;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == ~0u;
}
#define TUCKFOLD_REDUCE(name, expression)                              \
  template <class T>                                                   \
  T __reduce_##name##_sync(unsigned, T value) {                        \
    const T* given = tuckfold::cuda::emulate::block().exchange(value); \
    T a = given[0];                                                    \
    for (int i = 1; i < 32; ++i) {                                     \
      const T b = given[i];                                            \
      a = expression;                                                  \
    }                                                                  \
    return a;                                                          \
  }
TUCKFOLD_REDUCE(max, std::max(a, b))
TUCKFOLD_REDUCE(min, std::min(a, b))
TUCKFOLD_REDUCE(add, static_cast<T>(a + b))
TUCKFOLD_REDUCE(or, a | b)
TUCKFOLD_REDUCE(and, a& b)
#undef TUCKFOLD_REDUCE
inline int __syncthreads_or(int predicate) {
  static int any;
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (predicate != 0) any = 1;
  __syncthreads();
  const int result = any;
  __syncthreads();
  return result;
}

// ---- one thread's instructions ------------------------------------------------------------------

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
void __stcg(T* to, T value) {
  *to = value;
}
// An atomic operation: plain code is atomic, because threads take turns.
template <class T, class Change>
T change_at(T* to, Change&& change) {
  const T before = *to;
  *to = static_cast<T>(change(before));
  return before;
}
template <class T>
T atomicAdd(T* to, T value) {
  return change_at(to, [&](T before) { return before + value; });
}
template <class T>
T atomicMax(T* to, T value) {
  return change_at(to, [&](T before) { return std::max(before, value); });
}
template <class T>
T atomicMin(T* to, T value) {
  return change_at(to, [&](T before) { return std::min(before, value); });
}
inline unsigned atomicInc(unsigned* to, unsigned most) {
  return change_at(to, [&](unsigned before) { return before >= most ? 0 : before + 1; });
}

using std::max;
using std::min;
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = static_cast<unsigned>(both >> (8 * (selector >> (4 * i) & 7u))) & 0xffu;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
// The sum rounded down: the number before the nearest one if that is above the exact sum, which is
// `sum` plus `lost`.
inline float __fmaf_rd(float a, float b, float c) {
  const float nearest = std::fma(a, b, c);
  const double product = static_cast<double>(a) * b;  // exact
  const double sum = product + c, part = sum - product;
  const double lost = (product - (sum - part)) + (c - part);
  return nearest - sum > lost ? std::nextafter(nearest, -HUGE_VALF) : nearest;
}
inline float __fadd_rd(float a, float b) { return __fmaf_rd(a, 1.0f, b); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xffu) * (b >> i & 0xffu);
  return c;
}
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
