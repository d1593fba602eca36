// Butterfly stages on vectors of samples: a twiddle is the same for all lanes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "structured/butterfly/butterfly_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/target.h"
#include "structured/butterfly/butterfly.h"
#include "structured/tile/vectors_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::structured::HWY_NAMESPACE {

template <class T>
struct Pair {
  Vec<T> x, y;
};

template <class T>
HWY_INLINE Pair<T> turn(const T* t, Pair<T> p) {
  const Tag<T> d;
  return {hn::MulAdd(hn::Set(d, t[1]), p.y, hn::Mul(hn::Set(d, t[0]), p.x)),
          hn::MulAdd(hn::Set(d, t[3]), p.y, hn::Mul(hn::Set(d, t[2]), p.x))};
}

// By the transpose.
template <class T>
HWY_INLINE Pair<T> turn_back(const T* t, Pair<T> g) {
  const Tag<T> d;
  return {hn::MulAdd(hn::Set(d, t[2]), g.y, hn::Mul(hn::Set(d, t[0]), g.x)),
          hn::MulAdd(hn::Set(d, t[3]), g.y, hn::Mul(hn::Set(d, t[1]), g.x))};
}

template <class T>
HWY_INLINE void add_outer_product(Pair<T> g, Pair<T> in, Vec<T>* sums) {
  sums[0] = hn::MulAdd(g.x, in.x, sums[0]);
  sums[1] = hn::MulAdd(g.x, in.y, sums[1]);
  sums[2] = hn::MulAdd(g.y, in.x, sums[2]);
  sums[3] = hn::MulAdd(g.y, in.y, sums[3]);
}

template <class T, int kCount>
HWY_INLINE void add_to_twiddles(Vec<T>* sums, T* const* to) {
  alignas(64) T totals[4 * kCount] = {};
  add_sums<T, 4 * kCount>(sums, totals);
  for (int i = 0; i < kCount; ++i) {
    for (int j = 0; j < 4; ++j) to[i][j] += totals[4 * i + j];
  }
}

// ---- one stage ----------------------------------------------------------------------------------

template <class T>
void forward_one(const Stages<T>& s, const T* in, T* out) {
  const Tag<T> d;
  const std::int64_t stride = s.stride[0], apart = stride * s.lanes;
  for (std::int64_t block = 0; block < s.rows / (2 * stride); ++block) {
    for (std::int64_t j = 0; j < stride; ++j) {
      const T* t = s.twiddle[0] + 4 * (s.tied ? j : block * stride + j);
      const std::int64_t at = (block * 2 * stride + j) * s.lanes;
      for (std::int64_t i = at; i < at + s.lanes; i += width<T>()) {
        const auto p = turn<T>(t, {hn::LoadU(d, in + i), hn::LoadU(d, in + i + apart)});
        hn::StoreU(p.x, d, out + i);
        hn::StoreU(p.y, d, out + i + apart);
      }
    }
  }
}

template <class T>
void backward_one(const Stages<T>& s, const T* in, T* g, T* const* g_twiddle) {
  const Tag<T> d;
  const std::int64_t stride = s.stride[0], apart = stride * s.lanes;
  const std::int64_t blocks = s.rows / (2 * stride);
  for (std::int64_t outer = 0; outer < (s.tied ? 1 : blocks); ++outer) {
    for (std::int64_t j = 0; j < stride; ++j) {
      const std::int64_t number = s.tied ? j : outer * stride + j;
      const T* t = s.twiddle[0] + 4 * number;
      Vec<T> sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::int64_t block = outer; block < (s.tied ? blocks : outer + 1); ++block) {
        const std::int64_t at = (block * 2 * stride + j) * s.lanes;
        for (std::int64_t i = at; i < at + s.lanes; i += width<T>()) {
          const Pair<T> grad{hn::LoadU(d, g + i), hn::LoadU(d, g + i + apart)};
          add_outer_product<T>(grad, {hn::LoadU(d, in + i), hn::LoadU(d, in + i + apart)}, sums);
          const auto p = turn_back<T>(t, grad);
          hn::StoreU(p.x, d, g + i);
          hn::StoreU(p.y, d, g + i + apart);
        }
      }
      T* const to[] = {g_twiddle[0] + 4 * number};
      add_to_twiddles<T, 1>(sums, to);
    }
  }
}

// ---- two stages ---------------------------------------------------------------------------------

// Four rows of a block: the first stage takes (0, 1) and (2, 3), the second (0, 2) and (1, 3).
// Growing strides s, 2 s: rows 0, s, 2 s, 3 s; shrinking ones 2 s, s: rows 0, 2 s, s, 3 s.
template <class T>
struct Quads {
  std::int64_t s, blocks;
  std::int64_t row[4];
  std::int64_t first_of_pair;   // twiddle numbers of the first stage are this far apart, and
  std::int64_t second_of_pair;  // those of the second
  std::int64_t first_of_block, second_of_block;

  explicit Quads(const Stages<T>& stages) {
    const bool grows = stages.stride[0] < stages.stride[1];
    s = std::min(stages.stride[0], stages.stride[1]);
    blocks = stages.rows / (4 * s);
    const std::int64_t near = s * stages.lanes, far = 2 * near;
    row[0] = 0;
    row[1] = grows ? near : far;
    row[2] = grows ? far : near;
    row[3] = near + far;
    // Stride s has two blocks of pairs here; stride 2 s one, its pairs j and j + s.
    const std::int64_t small_pair = stages.tied ? 0 : s, block = stages.tied ? 0 : 2 * s;
    first_of_pair = grows ? small_pair : s;
    second_of_pair = grows ? s : small_pair;
    first_of_block = second_of_block = block;
  }
  void twiddles(const Stages<T>& stages, std::int64_t block, std::int64_t j, const T** t) const {
    t[0] = stages.twiddle[0] + 4 * (block * first_of_block + j);
    t[1] = t[0] + 4 * first_of_pair;
    t[2] = stages.twiddle[1] + 4 * (block * second_of_block + j);
    t[3] = t[2] + 4 * second_of_pair;
  }
};

template <class T>
void forward_two(const Stages<T>& s, const T* in, T* out) {
  const Tag<T> d;
  const Quads<T> q(s);
  for (std::int64_t block = 0; block < q.blocks; ++block) {
    for (std::int64_t j = 0; j < q.s; ++j) {
      const T* t[4];
      q.twiddles(s, block, j, t);
      const std::int64_t at = (block * 4 * q.s + j) * s.lanes;
      for (std::int64_t i = at; i < at + s.lanes; i += width<T>()) {
        const auto a = turn<T>(t[0], {hn::LoadU(d, in + i), hn::LoadU(d, in + i + q.row[1])});
        const auto b =
            turn<T>(t[1], {hn::LoadU(d, in + i + q.row[2]), hn::LoadU(d, in + i + q.row[3])});
        const auto c = turn<T>(t[2], {a.x, b.x});
        const auto e = turn<T>(t[3], {a.y, b.y});
        hn::StoreU(c.x, d, out + i);
        hn::StoreU(e.x, d, out + i + q.row[1]);
        hn::StoreU(c.y, d, out + i + q.row[2]);
        hn::StoreU(e.y, d, out + i + q.row[3]);
      }
    }
  }
}

template <class T>
void backward_two(const Stages<T>& s, const T* in, T* g, T* const* g_twiddle) {
  const Tag<T> d;
  const Quads<T> q(s);
  for (std::int64_t outer = 0; outer < (s.tied ? 1 : q.blocks); ++outer) {
    for (std::int64_t j = 0; j < q.s; ++j) {
      const T* t[4];
      q.twiddles(s, outer, j, t);
      Vec<T> sums[16];
      for (auto& sum : sums) sum = hn::Zero(d);
      for (std::int64_t block = outer; block < (s.tied ? q.blocks : outer + 1); ++block) {
        const std::int64_t at = (block * 4 * q.s + j) * s.lanes;
        for (std::int64_t i = at; i < at + s.lanes; i += width<T>()) {
          const Pair<T> x{hn::LoadU(d, in + i), hn::LoadU(d, in + i + q.row[1])};
          const Pair<T> y{hn::LoadU(d, in + i + q.row[2]), hn::LoadU(d, in + i + q.row[3])};
          const auto a = turn<T>(t[0], x), b = turn<T>(t[1], y);
          const Pair<T> gc{hn::LoadU(d, g + i), hn::LoadU(d, g + i + q.row[2])};
          const Pair<T> ge{hn::LoadU(d, g + i + q.row[1]), hn::LoadU(d, g + i + q.row[3])};
          add_outer_product<T>(gc, {a.x, b.x}, sums + 8);
          add_outer_product<T>(ge, {a.y, b.y}, sums + 12);
          const auto c = turn_back<T>(t[2], gc), e = turn_back<T>(t[3], ge);
          const Pair<T> ga{c.x, e.x}, gb{c.y, e.y};
          add_outer_product<T>(ga, x, sums);
          add_outer_product<T>(gb, y, sums + 4);
          const auto gx = turn_back<T>(t[0], ga), gy = turn_back<T>(t[1], gb);
          hn::StoreU(gx.x, d, g + i);
          hn::StoreU(gx.y, d, g + i + q.row[1]);
          hn::StoreU(gy.x, d, g + i + q.row[2]);
          hn::StoreU(gy.y, d, g + i + q.row[3]);
        }
      }
      T* const to[] = {g_twiddle[0] + (t[0] - s.twiddle[0]), g_twiddle[0] + (t[1] - s.twiddle[0]),
                       g_twiddle[1] + (t[2] - s.twiddle[1]), g_twiddle[1] + (t[3] - s.twiddle[1])};
      add_to_twiddles<T, 4>(sums, to);
    }
  }
}

template <class T>
void forward(const Stages<T>& s, const T* in, T* out) {
  s.count == 1 ? forward_one(s, in, out) : forward_two(s, in, out);
}
template <class T>
void backward(const Stages<T>& s, const T* in, T* g, T* const* g_twiddle) {
  s.count == 1 ? backward_one(s, in, g, g_twiddle) : backward_two(s, in, g, g_twiddle);
}

template <class T>
constexpr StagesKernels<T> kKernels = {&forward<T>, &backward<T>};

const StagesKernels<float>* stages_f32() { return &kKernels<float>; }
const StagesKernels<double>* stages_f64() { return &kKernels<double>; }

}  // namespace tuckfold::structured::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold::structured {

HWY_EXPORT(stages_f32);
HWY_EXPORT(stages_f64);

template <>
const StagesKernels<float>& stages_kernels<float>() noexcept {
  choose_cpu_target();
  return *HWY_DYNAMIC_DISPATCH(stages_f32)();
}
template <>
const StagesKernels<double>& stages_kernels<double>() noexcept {
  choose_cpu_target();
  return *HWY_DYNAMIC_DISPATCH(stages_f64)();
}

}  // namespace tuckfold::structured
#endif
