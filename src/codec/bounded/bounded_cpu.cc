// bounded on the CPU, codes=bits. A chunk passes through buffers in the L1 cache: values become
// codes, which are checked; codes become differences, or stay if they are narrower; these become
// planes of one bit of 16 values each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/bounded/bounded_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/memory_order.h"
#include "codec/bounded/bounded.h"
#include "codec/bounded/bounded_cpu-inl.h"
#include "codec/bounded/bounded_masks_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- 16 bytes and their eight planes ------------------------------------------------------------

// Plane j of 16 bytes: 16 bits, bit i of which is bit j of byte i. Eight bytes and their planes are
// the 8 x 8 bits of a 64-bit word, transposed.
template <class D, class V>
HWY_ATTR HWY_INLINE V transpose(D d, V x) {
  auto t = hn::And(hn::Xor(x, hn::ShiftRight<7>(x)), hn::Set(d, 0x00aa00aa00aa00aau));
  x = hn::Xor(x, hn::Xor(t, hn::ShiftLeft<7>(t)));
  t = hn::And(hn::Xor(x, hn::ShiftRight<14>(x)), hn::Set(d, 0x0000cccc0000ccccu));
  x = hn::Xor(x, hn::Xor(t, hn::ShiftLeft<14>(t)));
  t = hn::And(hn::Xor(x, hn::ShiftRight<28>(x)), hn::Set(d, 0x00000000f0f0f0f0u));
  return hn::Xor(x, hn::Xor(t, hn::ShiftLeft<28>(t)));
}

// Every eight bytes of a chunk, in place.
HWY_ATTR void transpose_words(std::uint8_t* bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  auto* words = reinterpret_cast<std::uint64_t*>(bytes);
  for (std::size_t i = 0; i < kHalves; i += hn::Lanes(d)) {
    hn::Store(transpose(d, hn::Load(d, words + i)), d, words + i);
  }
}

// All rows of a chunk, in place; kToPlanes: from bytes, else to them.
template <bool kToPlanes>
HWY_ATTR void transpose_rows(std::uint8_t* rows) {
  const hn::ScalableTag<std::uint64_t> d;
#if HWY_TARGET == HWY_SCALAR
  for (std::uint8_t* row = rows; row < rows + kChunk; row += kRow) {
    alignas(8) std::uint8_t halves[kRow];
    for (int i = 0; i < kRow; ++i) halves[i] = kToPlanes ? row[i] : row[i % 8 * 2 + i / 8];
    for (int i = 0; i < 2; ++i) {
      auto* word = reinterpret_cast<std::uint64_t*>(halves) + i;
      hn::StoreU(transpose(d, hn::LoadU(d, word)), d, word);
    }
    for (int i = 0; i < kRow; ++i) row[i] = kToPlanes ? halves[i % 2 * 8 + i / 2] : halves[i];
  }
#else
  const hn::Repartition<std::uint8_t, decltype(d)> d8;
  alignas(16) static constexpr std::uint8_t kJoin[16] = {0, 8,  1, 9,  2, 10, 3, 11,
                                                         4, 12, 5, 13, 6, 14, 7, 15};
  alignas(16) static constexpr std::uint8_t kPart[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                         1, 3, 5, 7, 9, 11, 13, 15};
  const auto order = hn::LoadDup128(d8, kToPlanes ? kJoin : kPart);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d8));
  for (std::int64_t i = 0; i < kChunk; i += lanes) {
    auto v = hn::Load(d8, rows + i);
    if constexpr (!kToPlanes) v = hn::TableLookupBytes(v, order);
    v = hn::BitCast(d8, transpose(d, hn::BitCast(d, v)));
    if constexpr (kToPlanes) v = hn::TableLookupBytes(v, order);
    hn::Store(v, d8, rows + i);
  }
#endif
}

// ---- codes and differences ----------------------------------------------------------------------

constexpr std::size_t kPayloadRoom = 2 * kMostWords + 64;  // planes are stored by 32

template <class D, class V>
HWY_ATTR HWY_INLINE std::uint32_t or_of_lanes(D d, V v) {
  alignas(64) std::uint32_t parts[HWY_MAX_BYTES / 4];
  hn::Store(v, d, parts);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) bits |= parts[i];
  return bits;
}

// Zigzag differences of codes to `coded`; returns the OR of them. codes[-1] exists.
HWY_ATTR std::uint32_t differences(const std::int32_t* codes, std::uint32_t* coded) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto* from = reinterpret_cast<const std::uint32_t*>(codes);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto all = hn::Zero(d);
  for (std::int64_t i = 0; i < kChunk; i += lanes) {
    const auto step = hn::Sub(hn::LoadU(d, from + i), hn::LoadU(d, from + i - 1));
    const hn::RebindToSigned<decltype(d)> di;
    const auto sign = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(di, step)));
    const auto z = hn::Xor(hn::ShiftLeft<1>(step), sign);
    all = hn::Or(all, z);
    hn::StoreU(z, d, coded + i);
  }
  return or_of_lanes(d, all);
}

// The OR of the codes if they take fewer bits than their differences, as after ReLU, where most are
// 0; else 0. A few rows decide, and then some more confirm it. No code may be negative.
std::uint32_t narrower_alone(const std::int32_t* codes, const std::uint32_t* coded) {
  const auto saved = [&](int step) {
    int bits = 0;
    for (int row = 0; row < kRows; row += step) {
      std::uint32_t alone = 0, steps = 0;
      for (std::int64_t i = row * kRow; i < (row + 1) * kRow; ++i) {
        alone |= static_cast<std::uint32_t>(codes[i]);
        steps |= coded[i];
      }
      bits += std::bit_width(steps) - std::bit_width(alone);
    }
    return bits;
  };
  if (saved(16) <= 0 || saved(4) <= 0) return 0;
  std::uint32_t together = 0;
  for (std::int64_t i = 0; i < kChunk; ++i) together |= static_cast<std::uint32_t>(codes[i]);
  return together >> 31 == 0 ? together : 0;
}

// Whether differences are even, as of values that are multiples of about two steps: in more of
// every fourth row than not, rows of 0 apart.
HWY_ATTR bool mostly_even(const std::uint32_t* coded) {
  const hn::CappedTag<std::uint32_t, kRow> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1u);
  int even = 0;
  for (int row = 0; row < kRows; row += 4) {
    auto any = hn::Zero(d), parity = hn::Zero(d);
    for (std::int64_t i = row * kRow; i < (row + 1) * kRow; i += lanes) {
      const auto v = hn::Load(d, coded + i);
      any = hn::Or(any, v);
      parity = hn::Or(parity, hn::And(hn::Xor(v, hn::ShiftRight<1>(v)), one));
    }
    const bool zero = hn::AllTrue(d, hn::Eq(any, hn::Zero(d)));
    const bool all_even = hn::AllTrue(d, hn::Eq(parity, hn::Zero(d)));
    even += !all_even ? -1 : zero ? 0 : 1;
  }
  return even > 0;
}

// Numbers of kEvenSteps from those of kSteps, in place; returns the OR of them.
HWY_ATTR std::uint32_t raise_odd(std::uint32_t* coded) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto all = hn::Zero(d);
  for (std::int64_t i = 0; i < kChunk; i += lanes) {
    const auto v = hn::Load(d, coded + i);
    const auto raised = hn::Add(v, hn::ShiftLeft<1>(hn::And(v, hn::Set(d, 1u))));
    all = hn::Or(all, raised);
    hn::Store(raised, d, coded + i);
  }
  return or_of_lanes(d, all);
}

// Byte k of every number.
template <int K>
HWY_ATTR void split_bytes(const std::uint32_t* coded, std::uint8_t (*bytes)[kChunk]) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < kChunk; i += lanes) {
    const auto v = hn::Load(d, coded + i);
    hn::StoreU(hn::TruncateTo(d8, v), d8, bytes[0] + i);
    if constexpr (K > 1) hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<8>(v)), d8, bytes[1] + i);
    if constexpr (K > 2) hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<16>(v)), d8, bytes[2] + i);
    if constexpr (K > 3) hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<24>(v)), d8, bytes[3] + i);
  }
}
// Numbers from their bytes; differences are summed up within kSummed of them.
constexpr int kSummed = HWY_TARGET == HWY_SCALAR ? 1 : 4;
template <int K, Numbers kWhat>
HWY_ATTR void join_bytes(const std::uint8_t (*bytes)[kChunk], std::uint32_t* numbers) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1u);
  const auto load = [&](int k, std::int64_t i)
                        HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(d8, bytes[k] + i)); };
  for (std::int64_t i = 0; i < kChunk; i += lanes) {
    auto v = load(0, i);
    if constexpr (K > 1) v = hn::Or(v, hn::ShiftLeft<8>(load(1, i)));
    if constexpr (K > 2) v = hn::Or(v, hn::ShiftLeft<16>(load(2, i)));
    if constexpr (K > 3) v = hn::Or(v, hn::ShiftLeft<24>(load(3, i)));
    if constexpr (kWhat == kEvenSteps) v = hn::Sub(v, hn::ShiftLeft<1>(hn::And(v, one)));
    if constexpr (kWhat != kCodes) {
      v = hn::Xor(hn::ShiftRight<1>(v), hn::Sub(hn::Zero(d), hn::And(v, one)));
#if HWY_TARGET != HWY_SCALAR
      v = hn::Add(v, hn::ShiftLeftLanes<1>(d, v));
      v = hn::Add(v, hn::ShiftLeftLanes<2>(d, v));
#endif
    }
    hn::Store(v, d, numbers + i);
  }
}

// How many of eight planes there are up to the last that is not 0.
inline int planes_used(const std::uint8_t* planes) {
  std::uint64_t low, high;
  std::memcpy(&low, planes, 8);
  std::memcpy(&high, planes + 8, 8);
  const int above = 8 - std::countl_zero(high) / 16, below = 4 - std::countl_zero(low) / 16;
  return high != 0 ? above : below;
}

// Numbers as bytes, to a payload with masks.
template <int K>
void store_masked_rows(Form form, Numbers what, Masks<K>& masks, const Groups& groups, int widest,
                       std::uint8_t (*bytes)[kChunk], std::uint8_t* payload) {
  for (int k = 0; k < K; ++k) transpose_words(bytes[k]);
  payload[0] = 0;
  payload[1] = static_cast<std::uint8_t>(front_byte(form, what));
  std::uint8_t* to = payload + 2;
  if (form == kGroups) {
    to = store_groups(masks, groups, to);
  } else if constexpr (K == 1) {
    const int bits = mask_bits(widest);
    payload[0] = static_cast<std::uint8_t>(bits);
    to = with_mask_bits(bits,
                        [&]<int kBits>() { return store_masks<kBits>(masks.halves, kHalves, to); });
  }
  *store_masked<K>(bytes, masks, to) = 0;  // a last byte that makes their number even
}

// Numbers that K bytes hold, to a payload; returns its bytes.
template <int K>
std::size_t store_rows(const std::uint32_t* numbers, Numbers what, int widest, int most_grouped,
                       std::uint8_t* payload) {
  alignas(64) std::uint8_t planes[K][kChunk];
  split_bytes<K>(numbers, planes);
  Masks<K> masks;
  if constexpr (K <= 2) {
    masks_of(planes, masks);
    if (widest <= most_grouped) {
      Groups groups;
      const PlaneCounts counts = counts_of(masks, widest, groups);
      const Form form = form_of(widest, counts);
      if (form != kWidths) {
        store_masked_rows(form, what, masks, groups, widest, planes, payload);
        return 2 * static_cast<std::size_t>(words_of(form, widest, counts));
      }
    }
  }
  for (auto& eight : planes) transpose_rows<true>(eight);
  const int least = std::max(widest - 15, 0);
  payload[0] = static_cast<std::uint8_t>(least);
  payload[1] = static_cast<std::uint8_t>(front_byte(kWidths, what));
  std::uint8_t* to = payload + 2 * kWidthWords;
  const auto store_row = [&](int row) {
    int width = 0;
    if constexpr (K <= 2) width = row_width(masks, row);
    for (int k = 0; k < K; ++k) {
      const std::uint8_t* eight = planes[k] + row * kRow;
      std::memcpy(to + 16 * k, eight, 16);
      if constexpr (K <= 2) continue;
      const int used = planes_used(eight);
      width = used != 0 ? 8 * k + used : width;
    }
    width = std::max(width, least);
    to += 2 * width;
    return width - least;
  };
  for (int row = 0; row < kRows; row += 2) {
    const int first = store_row(row), second = store_row(row + 1);
    payload[2 + row / 2] = static_cast<std::uint8_t>(first | second << 4);
  }
  return static_cast<std::size_t>(to - payload);
}

// Masks of the first 0 … 8 planes.
constexpr std::uint64_t kFirstPlanes[9][2] = {
    {0, 0},         {0xffffu, 0},     {0xffffffffu, 0},     {0xffffffffffffu, 0},
    {~0ull, 0},     {~0ull, 0xffffu}, {~0ull, 0xffffffffu}, {~0ull, 0xffffffffffffu},
    {~0ull, ~0ull},
};

inline int stored_width(const std::uint8_t* payload, int row) {
  return payload[0] + ((payload[2 + row / 2] >> (row % 2 * 4)) & 15);
}

// Reads a payload of numbers that K bytes hold; may read 64 bytes past its end.
template <int K, Numbers kWhat>
void load_rows(const std::uint8_t* payload, std::uint32_t* numbers) {
  alignas(64) std::uint8_t planes[K][kChunk];
  const std::uint8_t* from = payload + 2 * kWidthWords;
  for (int row = 0; row < kRows; ++row) {
    const int width = stored_width(payload, row);
    for (int k = 0; k < K; ++k) {
      // All eight planes, then 0 over those that belong to the next row.
      const int used = K == 1 ? width : std::clamp(width - 8 * k, 0, 8);
      std::uint64_t low, high;
      std::memcpy(&low, from + 16 * k, 8);
      std::memcpy(&high, from + 16 * k + 8, 8);
      low &= kFirstPlanes[used][0];
      high &= kFirstPlanes[used][1];
      std::memcpy(planes[k] + row * kRow, &low, 8);
      std::memcpy(planes[k] + row * kRow + 8, &high, 8);
    }
    from += 2 * width;
  }
  for (auto& eight : planes) transpose_rows<false>(eight);
  join_bytes<K, kWhat>(planes, numbers);
}

// Numbers of K bytes each, from the planes of a payload with masks.
template <int K, Numbers kWhat>
void load_masked_rows(const std::uint8_t* from, const Masks<K>& masks, std::uint32_t* numbers) {
  alignas(64) std::uint8_t bytes[K][kChunk];
  load_masked<K>(from, masks, bytes);
  for (auto& eight : bytes) transpose_words(eight);
  join_bytes<K, kWhat>(bytes, numbers);
}

// Extends sums within kSummed numbers to sums of all numbers, which are codes, in place.
HWY_ATTR HWY_NOINLINE void sum_up(std::int32_t base, std::uint32_t* sums) {
  const hn::CappedTag<std::uint32_t, kSummed> d;
  auto before = hn::Set(d, static_cast<std::uint32_t>(base));
  for (int i = 0; i < kChunk; i += kSummed) {
    const auto v = hn::Load(d, sums + i);
    hn::Store(hn::Add(v, before), d, sums + i);
    before = hn::Add(before, hn::Broadcast<kSummed - 1>(v));
  }
}

// Calls visit.template operator()<K>() with the bytes that so many bits take.
template <class Visit>
auto with_bytes(int bits, Visit&& visit) {
  if (bits <= 8) return visit.template operator()<1>();
  if (bits <= 16) return visit.template operator()<2>();
  if (bits <= 24) return visit.template operator()<3>();
  return visit.template operator()<4>();
}

template <class Visit>
void with_numbers(Numbers what, Visit&& visit) {
  if (what == kSteps) return visit.template operator()<kSteps>();
  if (what == kCodes) return visit.template operator()<kCodes>();
  visit.template operator()<kEvenSteps>();
}

// ---- chunks -------------------------------------------------------------------------------------

void store_header(std::int32_t base, int kind, std::size_t bytes, std::byte* to) {
  const auto both = static_cast<std::uint16_t>(kind | static_cast<int>(bytes / 2) << 3);
  std::memcpy(to, &base, 4);
  std::memcpy(to + 4, &both, 2);
}

// Stores the values' bits: one value if they are all the same, else all of them.
std::size_t keep_chunk(const void* bits, std::int64_t count, std::size_t width, std::byte* header,
                       std::byte* out) {
  const auto* bytes = static_cast<const std::byte*>(bits);
  const std::size_t all = static_cast<std::size_t>(count) * width;
  const bool same = std::memcmp(bytes, bytes + width, all - width) == 0;
  const std::size_t size = same ? width : all;
  std::memcpy(out, bytes, size);
  if (size % 2 != 0) out[size] = std::byte{0};
  store_header(0, same ? kSame : kKept, size + size % 2, header);
  return size + size % 2;
}

template <class Real>
std::size_t pack_chunk(const TensorBound& tensor, const void* bits, std::int64_t count,
                       std::byte* header, std::byte* out) {
  alignas(64) Real buffer[kChunk];
  alignas(64) std::int32_t room[16 + kChunk];
  alignas(64) std::uint32_t coded[kChunk];
  alignas(64) std::uint8_t payload[kPayloadRoom];
  std::int32_t* codes = room + 16;
  const std::size_t width = size_bytes(tensor.dtype);
  const Real* values = as_reals(tensor.dtype, bits, count, buffer);
  const int number = quantize(tensor, values, count, codes);
  if (number < 0) return keep_chunk(bits, count, width, header, out);
  for (std::int64_t i = count; i < kChunk; ++i) codes[i] = codes[count - 1];
  codes[-1] = codes[0];
  const std::uint32_t steps = differences(codes, coded);
  const std::uint32_t alone = steps != 0 ? narrower_alone(codes, coded) : 0;
  const auto* numbers = alone != 0 ? reinterpret_cast<const std::uint32_t*>(codes) : coded;
  Numbers what = alone != 0 ? kCodes : kSteps;
  int widest = std::bit_width(alone != 0 ? alone : steps);
  const int most_grouped = grouped_bits(width, what == kSteps);
  if (what == kSteps && widest < most_grouped && mostly_even(coded)) {
    what = kEvenSteps;
    widest = std::bit_width(raise_odd(coded));
  }
  std::size_t size = 0;
  if (widest > 0) {
    size = with_bytes(widest, [&]<int K>() {
      return store_rows<K>(numbers, what, widest, most_grouped, payload);
    });
  }
  if (size >= static_cast<std::size_t>(count) * width) {
    return keep_chunk(bits, count, width, header, out);
  }
  std::memcpy(out, payload, size);
  store_header(alone != 0 ? 0 : codes[0], number, size, header);
  return size;
}

// The widest row of a payload with widths; -1 if it is invalid, or has too few words for them.
int widest_row(const std::uint8_t* payload, int words) {
  if (words < kWidthWords) return -1;
  int sum = 0, widest = 0;
  for (int i = 0; i < kRows / 2; ++i) {
    const int first = payload[2 + i] & 15, second = payload[2 + i] >> 4;
    sum += first + second;
    widest = std::max(widest, std::max(first, second));
  }
  sum += static_cast<int>(kRows) * payload[0];
  widest += payload[0];
  return widest <= 32 && words == kWidthWords + sum ? widest : -1;
}

template <class Real>
bool unpack_chunk(const TensorBound& tensor, const ChunkHeader& header, const std::byte* from,
                  std::int64_t count, bool stream, void* bits) {
  alignas(64) std::uint32_t codes[kChunk];
  alignas(64) std::uint8_t payload[kPayloadRoom];
  const std::size_t width = size_bytes(tensor.dtype);
  if (header.kind == kKept) {
    std::memcpy(bits, from, static_cast<std::size_t>(count) * width);
    return true;
  }
  if (header.kind == kSame) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<std::byte*>(bits) + static_cast<std::size_t>(i) * width, from, width);
    }
    return true;
  }
  if (header.words == 0) {
    std::fill_n(codes, kChunk, static_cast<std::uint32_t>(header.base));
  } else {
    std::memcpy(payload, from, 2 * static_cast<std::size_t>(header.words));
    if (!is_front(payload[1])) return false;
    const Numbers what = numbers_in(payload[1]);
    if (form_in(payload[1]) == kWidths) {
      const int widest = widest_row(payload, header.words);
      if (widest < 0) return false;
      with_bytes(widest, [&]<int K>() {
        with_numbers(what, [&]<Numbers kWhat>() { load_rows<K, kWhat>(payload, codes); });
      });
    } else {
      AnyMasks masks;
      if (!read_masks(payload, header.words, masks)) return false;
      const std::uint8_t* planes = payload + masks.front_bytes;
      with_numbers(what, [&]<Numbers kWhat>() {
        if (masks.is_wide) {
          load_masked_rows<2, kWhat>(planes, masks.wide, codes);
        } else {
          load_masked_rows<1, kWhat>(planes, masks.narrow, codes);
        }
      });
    }
    if (what == kCodes) {
      for (std::uint32_t& code : codes) code += static_cast<std::uint32_t>(header.base);
    } else {
      sum_up(header.base, codes);
    }
  }
  const Grid<Real> grid = grid_of<Real>(tensor.dtype, tensor.bound, tensor.exact_zero, header.kind);
  store_values(tensor.dtype, grid, codes, count, stream, bits);
  return true;
}

std::size_t pack_chunks_target(const TensorBound& tensor, const FlatReader& in, std::int64_t begin,
                               std::int64_t end, std::byte* headers, std::byte* out) {
  alignas(64) std::byte gathered[kChunk * 8];
  std::byte* to = out;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t count = chunk_elems(tensor.elems, index);
    const void* bits = in.dense(index * kChunk, count);
    if (bits == nullptr) bits = in.in_thread_panel(index * kChunk, count);
    if (bits == nullptr) {
      in.gather_bytes(index * kChunk, count, gathered);
      bits = gathered;
    }
    const auto pack = tensor.dtype == DType::F64 ? pack_chunk<double> : pack_chunk<float>;
    to += pack(tensor, bits, count, headers + static_cast<std::size_t>(index) * kHeaderBytes, to);
  }
  return static_cast<std::size_t>(to - out);
}

bool unpack_chunks_target(const TensorBound& tensor, const std::byte* headers,
                          std::span<const std::byte> payloads, const FlatWriter& out,
                          std::int64_t begin, std::int64_t end, bool stream) {
  alignas(64) std::byte buffer[kChunk * 8];
  bool good = true;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t count = chunk_elems(tensor.elems, index);
    const ChunkHeader header =
        load_header(headers + static_cast<std::size_t>(index) * kHeaderBytes);
    const std::size_t bytes = 2 * static_cast<std::size_t>(header.words);
    if (!well_formed(header, size_bytes(tensor.dtype), count) || bytes > payloads.size()) {
      return false;
    }
    void* dense = out.dense(index * kChunk, count);
    void* bits = dense == nullptr ? buffer : dense;
    const bool past_cache =
        stream && dense != nullptr && reinterpret_cast<std::uintptr_t>(dense) % 64 == 0;
    const auto unpack = tensor.dtype == DType::F64 ? unpack_chunk<double> : unpack_chunk<float>;
    if (unpack(tensor, header, payloads.data(), count, past_cache, bits)) {
      if (dense == nullptr) out.scatter_bytes(index * kChunk, count, buffer);
    } else {
      good = false;
    }
    payloads = payloads.subspan(bytes);
  }
  return good;
}

Range range_of_target(const FlatReader& in, std::int64_t begin, std::int64_t count) {
  alignas(64) std::byte gathered[kChunk * 8];
  alignas(64) float buffer[kChunk];
  alignas(64) double wide[kChunk];
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  const auto width = static_cast<std::int64_t>(size_bytes(in.dtype()));
  const auto* all = static_cast<const std::byte*>(all_in_memory_order(in));
  for (std::int64_t at = begin; at < begin + count; at += kChunk) {
    const std::int64_t some = std::min(kChunk, begin + count - at);
    // Other elements than the sequence has there, but all are looked at.
    const void* bits = all != nullptr ? all + at * width : in.dense(at, some);
    if (bits == nullptr) {
      in.gather_bytes(at, some, gathered);
      bits = gathered;
    }
    if (in.dtype() == DType::F16) {
      widen_halves<halves::HWY_NAMESPACE::OfF16>(static_cast<const std::uint16_t*>(bits), some,
                                                 range);
    } else if (in.dtype() == DType::BF16) {
      widen_halves<halves::HWY_NAMESPACE::OfBF16>(static_cast<const std::uint16_t*>(bits), some,
                                                  range);
    } else if (in.dtype() == DType::F64) {
      widen(as_reals(in.dtype(), bits, some, wide), some, range);
    } else {
      widen(as_reals(in.dtype(), bits, some, buffer), some, range);
    }
  }
  return range;
}

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::bounded {

HWY_EXPORT(pack_chunks_target);
HWY_EXPORT(unpack_chunks_target);
HWY_EXPORT(range_of_target);

std::size_t pack_chunks(const TensorBound& tensor, const FlatReader& in, std::int64_t begin,
                        std::int64_t end, std::byte* headers, std::byte* out) {
  return HWY_DYNAMIC_DISPATCH(pack_chunks_target)(tensor, in, begin, end, headers, out);
}

bool unpack_chunks(const TensorBound& tensor, const std::byte* headers,
                   std::span<const std::byte> payloads, const FlatWriter& out, std::int64_t begin,
                   std::int64_t end, bool stream) {
  const bool good = HWY_DYNAMIC_DISPATCH(unpack_chunks_target)(tensor, headers, payloads, out,
                                                               begin, end, stream);
  if (stream) stream_fence();
  return good;
}

Range range_of(const FlatReader& in, std::int64_t begin, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(range_of_target)(in, begin, count);
}

}  // namespace tuckfold::bounded
#endif  // HWY_ONCE
