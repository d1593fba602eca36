// The 8 x 8 transform of dct_chop. The arithmetic, term by term, is that of dct_chop_block.h.
//
// Columns: a vector holds 8 or 16 columns of one row, so a column's transform is plain arithmetic
// on eight vectors. Rows: the eight values of a row are folded onto their mirror image,
//   lane k: x_k + x_{7-k},  lane 7-k: x_k - x_{7-k}           k < 4
// and coefficient v is four products with lanes looked up by table. Both passes stay in registers:
// the only stores are of finished rows, since every store waits for the streaming ones before it.
//
// NaN is not tested value by value. A NaN that arithmetic makes raises the processor's flag. A NaN
// in the input makes all coefficients, or values, of its block NaN, so that testing the first row
// is enough. If the flag is set at the end, the output is searched (NanFlag, NanWatch).
#if defined(TUCKFOLD_CODEC_DCT_CHOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_CHOP_INL_H
#undef TUCKFOLD_CODEC_DCT_CHOP_INL_H
#else
#define TUCKFOLD_CODEC_DCT_CHOP_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "codec/blocks/nan_cpu-inl.h"
#include "codec/dct_chop/dct_chop_block.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_chop::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef TUCKFOLD_DCT_CHOP_SLOTS
#define TUCKFOLD_DCT_CHOP_SLOTS (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

// Where a vector holds a row of a block; narrower targets use dct_chop_block.h itself.
#undef TUCKFOLD_DCT_CHOP_VECTORS
#define TUCKFOLD_DCT_CHOP_VECTORS (HWY_CAP_GE256 && HWY_ARCH_X86)

#if TUCKFOLD_DCT_CHOP_VECTORS
using tuckfold::HWY_NAMESPACE::NanWatch;

template <class D>
constexpr int lanes_of(D) {
  return static_cast<int>(hn::MaxLanes(D()));
}

// Lane k: v_{7-k} + v_k; lane 7-k: v_k - v_{7-k}; within each eight lanes.
template <class D>
struct Fold {
  using V = hn::Vec<D>;
  static constexpr int kLanes = lanes_of(D());
  alignas(64) static constexpr auto kMirror = [] {
    std::array<std::int32_t, kLanes> lanes{};
    for (int i = 0; i < kLanes; ++i) lanes[i] = i / 8 * 8 + 7 - i % 8;
    return lanes;
  }();
  alignas(64) static constexpr auto kSigns = [] {
    std::array<float, kLanes> signs{};
    for (int i = 0; i < kLanes; ++i) signs[i] = i % 8 < 4 ? 0.0f : -0.0f;
    return signs;
  }();

  explicit HWY_INLINE Fold(D d)
      : mirror(hn::SetTableIndices(d, kMirror.data())), signs(hn::Load(d, kSigns.data())) {}
  HWY_INLINE V operator()(V v) const {
    return hn::Add(hn::TableLookupLanes(v, mirror), hn::Xor(v, signs));
  }

  decltype(hn::SetTableIndices(D(), kMirror.data())) mirror;
  V signs;
};

// The lanes that up to four terms look up, and their factors in each row.
template <int K, int kLanes>
struct LaneTerms {
  alignas(64) std::array<std::array<std::int32_t, kLanes>, 4> lanes{};
  alignas(64) std::array<std::array<std::array<float, kLanes>, 4>, K> factors{};
};

// The sum of terms over looked-up lanes, each added to those before it.
template <int Terms, class D, class Factors, class Lookup>
HWY_INLINE hn::Vec<D> dot(D d, const Factors& factors, const Lookup& lookup) {
  auto sum = hn::Mul(lookup(0), hn::Load(d, factors[0].data()));
  for (int k = 1; k < Terms; ++k) sum = hn::MulAdd(lookup(k), hn::Load(d, factors[k].data()), sum);
  return sum;
}

// ---- pack ---------------------------------------------------------------------------------------

// Lane o of a packed row: coefficient o % K of block o / K, from folded rows put end to end. A
// block's second four lanes are d3 d2 d1 d0, the order in which odd coefficients sum.
template <int K, int kLanes, int kBlocks>
constexpr LaneTerms<K, kLanes> forward_terms() {
  LaneTerms<K, kLanes> terms;
  for (int o = 0; o < kBlocks * K; ++o) {
    const int block = o / K, v = o % K;
    for (int k = 0; k < 4; ++k) {
      terms.lanes[k][o] = block * 8 + (v % 2 == 0 ? k : 4 + k);
      for (int u = 0; u < K; ++u) terms.factors[u][k][o] = kScaled[u][v][v % 2 == 0 ? k : 3 - k];
    }
  }
  return terms;
}

// Prefetches the cache lines that will be read one block row and some later. In the order of
// addresses, which is not the order of reading, because only then do the hardware's own prefetchers
// help. A block row's last row is prefetched at its end and read at the beginning of the next,
// hence one block row *and* some.
class Ahead {
 public:
  HWY_INLINE Ahead(const float* from, std::int64_t block_row_floats)
      : next_(reinterpret_cast<const char*>(from) + block_row_floats * 4 + kAheadBytes) {}
  HWY_INLINE void lines(int count) {
    for (int i = 0; i < count; ++i, next_ += 64) __builtin_prefetch(next_, 0, 2);
  }
  // As lines(), for steps that do not read whole ones.
  HWY_INLINE void values(int count) {
    waiting_ += count;
    for (; waiting_ >= 16; waiting_ -= 16, next_ += 64) __builtin_prefetch(next_, 0, 2);
  }

 private:
  static constexpr std::int64_t kAheadBytes = 16384;
  const char* next_;
  int waiting_ = 0;
};

// Coefficients u < K, over alpha_u, of each of a vector's columns; rows[r] + col is the r-th row.
template <int K, class D, class V = hn::Vec<D>>
HWY_INLINE void forward_columns(D d, const float* const* rows, std::int64_t col, V* y) {
  V s[4], e[4];
  for (int k = 0; k < 4; ++k) {
    const V a = hn::LoadU(d, rows[k] + col), b = hn::LoadU(d, rows[7 - k] + col);
    s[k] = hn::Add(a, b);
    e[k] = hn::Sub(a, b);
  }
  const V e0 = hn::Add(s[0], s[3]), e1 = hn::Add(s[1], s[2]);
  const V o0 = hn::Sub(s[0], s[3]), o1 = hn::Sub(s[1], s[2]);
  const V ratio = hn::Set(d, kRatio);
  y[0] = hn::Add(e0, e1);
  if constexpr (K > 2) y[2] = hn::MulAdd(ratio, o1, o0);
  if constexpr (K > 4) y[4] = hn::Sub(e0, e1);
  if constexpr (K > 6) y[6] = hn::MulSub(ratio, o0, o1);
  for (int u = 1; u < K; u += 2) {
    y[u] = e[0];
    for (int k = 1; k < 4; ++k) y[u] = hn::MulAdd(hn::Set(d, kOdd[u / 2][k]), e[k], y[u]);
  }
}

// One vector of columns to K packed rows, which `put(u, row)` takes.
template <int K, class D, class Put>
HWY_INLINE void forward_step(D d, const float* const* rows, std::int64_t col, NanWatch& watch,
                             const Put& put) {
  using V = hn::Vec<D>;
  constexpr int kLanes = lanes_of(D());
  static constexpr auto kTerms = forward_terms<K, kLanes, kLanes / 8>();
  const Fold<D> fold(d);
  V y[K];
  forward_columns<K>(d, rows, col, y);
  for (int u = 0; u < K; ++u) {
    const V folded = fold(y[u]);
    const V row = dot<4>(d, kTerms.factors[u], [&](int k) HWY_ATTR {
      return hn::TableLookupLanes(folded, hn::SetTableIndices(d, kTerms.lanes[k].data()));
    });
    if (u == 0) watch.look_at(row);
    put(u, row);
  }
}

// One block row as stored, with contiguous packed rows.
template <int K>
HWY_ATTR HWY_NOINLINE void forward_block_row(const float* const* rows, std::int64_t cols,
                                             float* out) {
  const std::int64_t row_values = cols / 8 * K;
  Ahead ahead(rows[0], 8 * cols);
  NanWatch watch;
  const auto step = [&]<class D>(D d, std::int64_t col) HWY_ATTR {
    constexpr int kLanes = lanes_of(D());
    float* at = out + col / 8 * K;
    // Lanes past the blocks are junk that the next blocks overwrite, unless it reaches the next
    // row.
    const bool last = col / 8 * K + kLanes > row_values;
    forward_step<K>(d, rows, col, watch, [&](int u, hn::Vec<D> row) HWY_ATTR {
      if (last) {
        hn::BlendedStore(row, hn::FirstN(d, kLanes / 8 * K), d, at + u * row_values);
      } else {
        hn::StoreU(row, d, at + u * row_values);
      }
    });
    ahead.lines(kLanes / 2);
  };
  const hn::CappedTag<float, 16> wide;
  std::int64_t col = 0;
  for (; col + lanes_of(wide) <= cols; col += lanes_of(wide)) step(wide, col);
  if (col < cols) step(hn::CappedTag<float, 8>(), col);
}

// ---- pack through slots -------------------------------------------------------------------------

#if TUCKFOLD_DCT_CHOP_SLOTS

// Lane i of the result: lane indices[i] of a and b put end to end.
HWY_INLINE hn::Vec512<float> lookup_two(hn::Vec512<float> a, hn::Vec512<float> b,
                                        const std::int32_t* indices) {
  return hn::Vec512<float>{_mm512_permutex2var_ps(a.raw, _mm512_load_si512(indices), b.raw)};
}

// A slot is a cache line that holds as many blocks' rows as fit: a store into it crosses no line,
// which would have to wait for the streaming stores before it.
template <int K>
constexpr int kSlotBlocks = K <= 4 ? 4 : 2;
template <int K>
constexpr int kSlotValues = K* kSlotBlocks<K>;

// The lane of a slot's i-th value. For two blocks each eight lanes hold the even coefficients, then
// the odd ones: so they come from shuffles within 128 bits, which are cheaper.
template <int K>
constexpr int slot_lane(int i) {
  if (kSlotBlocks<K> == 4) return i;
  const int v = i % K;
  return i / K * 8 + (v % 2 == 0 ? v / 2 : 4 + v / 2);
}

// Slots are stored in groups that make whole cache lines, between pieces of other work.
template <int K>
struct Drain {
  static constexpr int kValues = kSlotValues<K>;
  static constexpr int kPart = kValues % 16 == 0  ? 16
                               : kValues % 8 == 0 ? 8
                               : kValues % 4 == 0 ? 4
                                                  : 2;
  static constexpr int kSlots = 16 / kPart, kLines = kValues / kPart;  // of a group

  const float* slots = nullptr;
  float* to = nullptr;
  std::int64_t to_step = 0;  // floats from one group's lines to the next one's
  std::int64_t groups = 0;
  bool stream = false;

  HWY_INLINE void step(std::int64_t most) {
    for (std::int64_t i = HWY_MIN(most, groups); i > 0; --i, --groups) {
      if (stream) {
        move<true>();
      } else {
        move<false>();
      }
      slots += kSlots * 16;
      to += to_step;
    }
  }

 private:
  template <bool kStream>
  HWY_INLINE void move() const {
    const hn::CappedTag<float, 16> d;
    hn::Vec512<float> slot[kSlots];
    for (int i = 0; i < kSlots; ++i) slot[i] = hn::Load(d, slots + i * 16);
    for (int line = 0; line < kLines; ++line) {
      const int at = line * 16 % kValues;
      int next = line * 16 / kValues, have = kValues - at;
      hn::Vec512<float> values = slot[next++];
      if (K != 4) {
        values = lookup_two(values, slot[HWY_MIN(next, kSlots - 1)], kFirst[at].data());
        ++next;
      }
      for (have += kValues; have < 16; have += kValues, ++next) {
        values = lookup_two(values, slot[next], kThen[have].data());
      }
      if constexpr (kStream) {
        hn::Stream(values, d, to + line * 16);
      } else {
        hn::Store(values, d, to + line * 16);
      }
    }
  }

  using Indices = std::array<std::int32_t, 16>;
  // kFirst[at]: the values of a slot from `at` on, then those of the next.
  alignas(64) static constexpr auto kFirst = [] {
    std::array<Indices, kValues> table{};
    for (int at = 0; at < kValues; ++at) {
      for (int i = 0; i < 16; ++i) {
        table[at][i] = at + i < kValues ? slot_lane<K>(at + i)
                                        : 16 + slot_lane<K>((at + i - kValues) % kValues);
      }
    }
    return table;
  }();
  // kThen[have]: `have` values in order, then those of a slot.
  alignas(64) static constexpr auto kThen = [] {
    std::array<Indices, 16> table{};
    for (int have = 0; have < 16; ++have) {
      for (int i = 0; i < 16; ++i)
        table[have][i] = i < have ? i : 16 + slot_lane<K>((i - have) % kValues);
    }
    return table;
  }();
};

// As forward_step, in the order of slot_lane.
template <int K, class D, class Put>
HWY_INLINE void forward_step_in_slots(D d, const float* const* rows, std::int64_t col,
                                      NanWatch& watch, const Put& put) {
  using V = hn::Vec<D>;
  alignas(64) static constexpr auto kFactors = [] {
    std::array<std::array<std::array<float, 16>, 4>, K> factors{};
    for (int u = 0; u < K; ++u) {
      for (int k = 0; k < 4; ++k) {
        for (int i = 0; i < 16; ++i) {
          const bool odd = i % 8 >= 4;
          const int v = i % 4 * 2 + (odd ? 1 : 0);
          factors[u][k][i] = v < K ? kScaled[u][v][odd ? 3 - k : k] : 0.0f;
        }
      }
    }
    return factors;
  }();
  const Fold<D> fold(d);
  V y[K];
  forward_columns<K>(d, rows, col, y);
  for (int u = 0; u < K; ++u) {
    const V folded = fold(y[u]);
    const V lanes[4] = {hn::Broadcast<0>(folded), hn::Broadcast<1>(folded),
                        hn::Broadcast<2>(folded), hn::Broadcast<3>(folded)};
    const V row = dot<4>(d, kFactors[u], [&](int k) HWY_ATTR { return lanes[k]; });
    if (u == 0) watch.look_at(row);
    put(u, row);
  }
}

// Two vectors of columns at a time where their packed rows fit into one.
template <int K, class D, class Put>
HWY_INLINE void forward_step_two(D d, const float* const* rows, std::int64_t col, Ahead& ahead,
                                 NanWatch& watch, const Put& put) {
  using V = hn::Vec<D>;
  static constexpr auto kTerms = forward_terms<K, 16, 4>();
  const Fold<D> fold(d);
  V left[K], right[K];
  forward_columns<K>(d, rows, col, left);
  ahead.lines(8);
  forward_columns<K>(d, rows, col + 16, right);
  ahead.lines(8);
  for (int u = 0; u < K; ++u) {
    const V a = fold(left[u]), b = fold(right[u]);
    const V row = dot<4>(d, kTerms.factors[u],
                         [&](int k) HWY_ATTR { return lookup_two(a, b, kTerms.lanes[k].data()); });
    if (u == 0) watch.look_at(row);
    put(u, row);
  }
}

// One slot of each row, at `at` and row_step slots further on, from eight rows.
template <int K, class D>
HWY_INLINE void forward_slot(D d, const float* const* rows, std::int64_t slot, float* at,
                             std::int64_t row_step, Ahead& ahead, NanWatch& watch) {
  const auto put = [&](int u, hn::Vec<D> row)
                       HWY_ATTR { hn::Store(row, d, at + u * row_step * 16); };
  if constexpr (kSlotBlocks<K> == 4) {
    forward_step_two<K>(d, rows, slot * 32, ahead, watch, put);
  } else {
    forward_step_in_slots<K>(d, rows, slot * 16, watch, put);
    ahead.lines(8);
  }
}

// Contiguous block rows straight to `out`, whose rows are whole groups of slots. As soon as every
// row has a group, the groups are stored, each to its row, while the next ones are computed.
template <int K>
HWY_ATTR HWY_NOINLINE void forward_rows(const float* in, std::int64_t cols, std::int64_t block_rows,
                                        float* out, bool stream) {
  constexpr int kSlots = Drain<K>::kSlots;
  constexpr int kGroups = (K + kSlots - 1) / kSlots;  // to drain at each slot
  const hn::CappedTag<float, 16> d;
  const std::int64_t segments = cols / 8 / kSlotBlocks<K> / kSlots;
  const std::int64_t row_values = cols / 8 * K;
  alignas(64) float buffers[2][K * kSlots * 16];
  Drain<K> drain{.to_step = row_values, .stream = stream};
  Ahead ahead(in, 8 * cols);
  NanWatch watch;
  int turn = 0;
  for (std::int64_t block_row = 0; block_row < block_rows;
       ++block_row, in += 8 * cols, out += K * row_values) {
    const float* rows[8];
    for (int r = 0; r < 8; ++r) rows[r] = in + r * cols;
    for (std::int64_t segment = 0; segment < segments; ++segment, turn ^= 1) {
      for (int i = 0; i < kSlots; ++i) {
        forward_slot<K>(d, rows, segment * kSlots + i, buffers[turn] + i * 16, kSlots, ahead,
                        watch);
        drain.step(kGroups);
      }
      drain.slots = buffers[turn];
      drain.to = out + segment * Drain<K>::kLines * 16;
      drain.groups = K;
    }
  }
  drain.step(K);
}

// The same for any row of whole slots, to the slots of whole block rows in their order; meanwhile
// the contents of `waiting` are stored.
template <int K>
HWY_ATTR HWY_NOINLINE void forward_slots(const float* in, std::int64_t cols,
                                         std::int64_t block_rows, float* out, Drain<K>& waiting) {
  constexpr int kBlocks = kSlotBlocks<K>;
  constexpr int kGroups = kBlocks * K * K / 16 / Drain<K>::kLines + 1;  // that a step's rows make
  const hn::CappedTag<float, 16> d;
  const std::int64_t row_slots = cols / 8 / kBlocks;
  Drain<K> drain = waiting;  // in registers
  Ahead ahead(in, 8 * cols);
  NanWatch watch;
  for (std::int64_t block_row = 0; block_row < block_rows; ++block_row, in += 8 * cols) {
    const float* rows[8];
    for (int r = 0; r < 8; ++r) rows[r] = in + r * cols;
    for (std::int64_t i = 0; i < row_slots; ++i) {
      forward_slot<K>(d, rows, i, out + (block_row * K * row_slots + i) * 16, row_slots, ahead,
                      watch);
      drain.step(kGroups);
    }
  }
  waiting = drain;
}
#endif  // TUCKFOLD_DCT_CHOP_SLOTS

// ---- unpack -------------------------------------------------------------------------------------

// Lane j < 4 of a block: E_j, lane 7-j: O_j, from a packed row followed by zeros. A term that is
// left out is the product of such a zero with -1, that is -0, which adds nothing.
template <int K, int kLanes>
constexpr LaneTerms<K, kLanes> inverse_terms() {
  LaneTerms<K, kLanes> terms;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int block = lane / 8, at = lane % 8;
    for (int k = 0; k < (K + 1) / 2; ++k) {
      const int v = 2 * k + (at < 4 ? 0 : 1);
      terms.lanes[k][lane] = v < K ? block * K + v : kLanes - 1;
      for (int u = 0; u < K; ++u) {
        terms.factors[u][k][lane] = v < K ? kScaled[u][v][at < 4 ? at : 7 - at] : -1.0f;
      }
    }
  }
  return terms;
}

// One vector of columns from K packed rows to eight rows.
template <int K, bool kStream, class D>
HWY_INLINE void inverse_step(D d, const float* in, std::int64_t in_row, float* const* rows,
                             std::int64_t col, Ahead& ahead, NanWatch& watch) {
  using V = hn::Vec<D>;
  constexpr int kLanes = lanes_of(D());
  static constexpr auto kTerms = inverse_terms<K, kLanes>();
  const Fold<D> fold(d);
  V y[K];
  for (int u = 0; u < K; ++u, in += in_row) {
    const V packed =
        K == 8 ? hn::LoadU(d, in) : hn::MaskedLoad(hn::FirstN(d, kLanes / 8 * K), d, in);
    // x_j = E_j + O_j, and mirrored E_j - O_j.
    y[u] = fold(dot<(K + 1) / 2>(d, kTerms.factors[u], [&](int k) HWY_ATTR {
      return hn::TableLookupLanes(packed, hn::SetTableIndices(d, kTerms.lanes[k].data()));
    }));
  }
  ahead.values(kLanes / 8 * K * K);
  V even[4] = {y[0], y[0], y[0], y[0]};
  if constexpr (K > 4) {
    even[0] = even[3] = hn::Add(y[0], y[4]);
    even[1] = even[2] = hn::Sub(y[0], y[4]);
  }
  if constexpr (K > 2) {
    const V ratio = hn::Set(d, kRatio);
    V a = y[2], b = hn::Mul(ratio, y[2]);
    if constexpr (K > 6) {
      a = hn::MulAdd(ratio, y[6], y[2]);
      b = hn::MulSub(ratio, y[2], y[6]);
    }
    even[0] = hn::Add(even[0], a);
    even[3] = hn::Sub(even[3], a);
    even[1] = hn::Add(even[1], b);
    even[2] = hn::Sub(even[2], b);
  }
  for (int j = 0; j < 4; ++j) {
    V upper = even[j], lower = even[j];
    if constexpr (K > 1) {
      V odd = j == 0 ? y[1] : hn::Mul(y[1], hn::Set(d, kOdd[0][j]));
      for (int u = 3; u < K; u += 2) {
        odd = j == 0 ? hn::Add(odd, y[u]) : hn::MulAdd(y[u], hn::Set(d, kOdd[u / 2][j]), odd);
      }
      upper = hn::Add(even[j], odd);
      lower = hn::Sub(even[j], odd);
    }
    if (j == 0) watch.look_at(upper);
    if constexpr (kStream) {
      hn::Stream(upper, d, rows[j] + col);
      hn::Stream(lower, d, rows[7 - j] + col);
    } else {
      hn::StoreU(upper, d, rows[j] + col);
      hn::StoreU(lower, d, rows[7 - j] + col);
    }
  }
}

// Block rows of K packed rows, in_row apart, to block rows of eight rows, block_row_step apart.
template <int K, bool kStream>
HWY_ATTR HWY_NOINLINE void inverse_block_rows(const float* in, std::int64_t in_row,
                                              std::int64_t cols, std::int64_t block_rows,
                                              float* const* first_rows,
                                              std::int64_t block_row_step) {
  const hn::CappedTag<float, 16> wide;
  Ahead ahead(in, K * in_row);
  NanWatch watch;
  float* rows[8];
  for (int r = 0; r < 8; ++r) rows[r] = first_rows[r];
  for (std::int64_t block_row = 0; block_row < block_rows; ++block_row, in += K * in_row) {
    std::int64_t col = 0;
    for (; col + lanes_of(wide) <= cols; col += lanes_of(wide)) {
      inverse_step<K, kStream>(wide, in + col / 8 * K, in_row, rows, col, ahead, watch);
    }
    if (col < cols) {
      inverse_step<K, kStream>(hn::CappedTag<float, 8>(), in + col / 8 * K, in_row, rows, col,
                               ahead, watch);
    }
    for (float*& row : rows) row += block_row_step;
  }
}

#endif  // TUCKFOLD_DCT_CHOP_VECTORS

}  // namespace tuckfold::dct_chop::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
