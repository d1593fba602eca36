// dct_quant's packing kernel of 512 bits. Blocks are taken 32 at a time: two at a time are
// transformed; then the search for the step runs on all 32, one in each lane; then each block's
// codes are squeezed into bytes, four at a time, by pext.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "base/stream_cpu-inl.h"
#include "codec/dct_quant_wide_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_WIDE
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

// A vector of quarters: which tile of columns 2j, 2j + 1 a lane belongs to, 16 more in block 1; the
// lanes of the first coefficients; and kScale of column v.
constexpr __mmask16 kFirstLanes = 0x0011;
constexpr int row_of_lane(int lane) { return lane / 8 * 4 + lane % 4; }
alignas(64) constexpr auto kTileOfLane = [] {
  std::array<std::array<std::int32_t, 16>, 4> table{};
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 16; ++i) {
      table[j][i] = kTileAt[j * 4 + row_of_lane(i) / 2] + i / 4 % 2 * 16;
    }
  }
  return table;
}();
alignas(64) constexpr auto kScaleOfQuarters = [] {
  std::array<std::array<float, 16>, 8> table{};
  for (int v = 0; v < 8; ++v) {
    for (int i = 0; i < 16; ++i) table[v][i] = kScale[row_of_lane(i) * 8 + v];
  }
  return table;
}();

// Two blocks lie in a vector by quarters: block 0's rows u = 0..3 of a column, block 1's, block 0's
// rows 4..7, block 1's. Codes of two columns share 32 bits; so a tile's four are 64 bits in the
// order that they are stored in.
constexpr int tile_offset(int k, int block) {
  return kTileCol[k] * 64 + kTileRow[k] / 2 * 32 + block % 2 * 16 + kTileRow[k] % 2 * 8;
}

// What packing leaves for each two blocks of a batch; or by lane, see lane_of.
struct alignas(64) PackBuffers {
  float z[kBatch / 2][8][16];              // coefficients by columns
  std::uint16_t levels[kBatch / 2][32];    // of tiles
  std::uint8_t codes[kBatch / 2][4 * 64];  // see tile_offset
  std::int32_t first[kBatch / 2][16];      // codes of the first column
  std::uint64_t lowest[kBatch];            // bits of codes, in the order of the tail
  std::uint16_t first_level[kBatch];       // by lane from here on
  std::uint8_t width[16][kBatch];
  std::uint8_t begin[18][kBatch];  // of a tile's bytes in the block; [16]: of the tail
  std::uint64_t header[kBatch];
  std::uint16_t odd[kBatch];     // bit i: tile kTileAt[i] has an odd width
  std::uint16_t halved[kBatch];  // bit k: tile k has half the step
  float inverse[kBatch];
};

// The lane that a block has in the search: what transposing makes of it.
constexpr int lane_of(int block) { return block / 16 * 16 + block % 2 * 8 + block % 16 / 2; }

// Coefficients and levels of two blocks.
template <bool kOffset>
HWY_INLINE void transform_two(const float* left, const float* right, std::int64_t row, float offset,
                              int block, PackBuffers& to) {
  const DF d;
  V x[8], y[8];
  const V shift = hn::Set(d, offset);
  for (int r = 0; r < 8; ++r) {
    const __m512 both =
        right == left + 8
            ? _mm512_loadu_ps(left + r * row)
            : _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(left + r * row)),
                                 _mm256_loadu_ps(right + r * row), 1);
    x[r] = kOffset ? hn::Sub(V{both}, shift) : V{both};
  }
  forward_pass(x, y);
  __m512 t[8];
  transpose_quarters(y, t);
  for (int i = 0; i < 4; ++i) {
    x[i] = V{_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88)};
    x[i + 4] = V{_mm512_shuffle_f32x4(t[i], t[i + 4], 0xDD)};
  }
  forward_pass(x, y);
  __m512i magnitude[8];
  for (int v = 0; v < 8; ++v) {
    y[v] = hn::Mul(y[v], hn::Load(d, kScaleOfQuarters[v].data()));
    hn::Store(y[v], d, to.z[block / 2][v]);
    magnitude[v] = _mm512_and_si512(_mm512_castps_si512(y[v].raw), _mm512_set1_epi32(0x7fffffff));
  }
  // The largest of each tile: of two columns, then of two lanes; the first coefficient apart.
  magnitude[0] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~kFirstLanes), magnitude[0]);
  __m512i tile[4];
  for (int j = 0; j < 4; ++j) {
    const __m512i two = _mm512_max_epu32(magnitude[2 * j], magnitude[2 * j + 1]);
    const __m512i four = _mm512_max_epu32(two, _mm512_shuffle_epi32(two, _MM_PERM_CDAB));
    tile[j] = _mm512_srli_epi32(_mm512_add_epi32(four, _mm512_set1_epi32(1)), kStepShift);
  }
  const __m512i low = _mm512_mask_mov_epi32(tile[0], 0xAAAA, tile[2]);
  const __m512i high = _mm512_mask_mov_epi32(tile[1], 0xAAAA, tile[3]);
  _mm512_store_si512(to.levels[block / 2], _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// levels[pair] has in its quarters eight words each: the upper half of block 0's tiles by rows,
// then block 1's, and their lower halves. Tile t of all blocks goes to by_tile[t].
HWY_INLINE void transpose_levels(const PackBuffers& from, __m512i* by_tile) {
  __m512i groups[2][8];
  for (int g = 0; g < 2; ++g) {
    __m512i a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = _mm512_load_si512(from.levels[g * 8 + i]);
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
      b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 2; ++i) {
        a[4 * h + 2 * i] = _mm512_unpacklo_epi32(b[4 * h + i], b[4 * h + 2 + i]);
        a[4 * h + 2 * i + 1] = _mm512_unpackhi_epi32(b[4 * h + i], b[4 * h + 2 + i]);
      }
    }
    for (int i = 0; i < 4; ++i) {
      groups[g][2 * i] = _mm512_unpacklo_epi64(a[i], a[i + 4]);
      groups[g][2 * i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 4]);
    }
  }
  for (int i = 0; i < 8; ++i) {
    by_tile[i] = _mm512_shuffle_i64x2(groups[0][i], groups[1][i], 0x44);
    by_tile[i + 8] = _mm512_shuffle_i64x2(groups[0][i], groups[1][i], 0xEE);
  }
}

// Steps, widths and headers of all blocks. The result: lanes that are not finite.
template <int kTiles>
HWY_INLINE __mmask32 search(const Form& form, PackBuffers& io) {
  __m512i levels[16], need[kTiles];
  transpose_levels(io, levels);
  const __m512i first = _mm512_load_si512(io.first_level);
  __m512i most = first;
  for (int k = 0; k < kTiles; ++k) {
    need[k] = levels[kTileRow[k] * 4 + kTileCol[k]];
    most = _mm512_max_epi16(most, need[k]);
  }
  __mmask32 bad = _mm512_cmpge_epi16_mask(most, _mm512_set1_epi16(kNoStep));
  const auto words = [](int value)
                         HWY_ATTR { return _mm512_set1_epi16(static_cast<short>(value)); };
  need[0] = _mm512_max_epi16(need[0], _mm512_sub_epi16(first, words(4 * form.dc)));
  for (int k = kTiles - 1; k > 0; --k) {
    need[k - 1] = _mm512_max_epi16(need[k - 1], _mm512_sub_epi16(need[k], words(4)));
  }
  most = need[0];
  for (int k = 1; k < kTiles; ++k) {
    need[k] = _mm512_max_epi16(need[k], _mm512_sub_epi16(need[k - 1], words(8)));
    most = _mm512_max_epi16(most, need[k]);
  }
  // need and most lack the 8 that dct_quant_block.h adds; so does the step here, until the end.
  const __m512i least = words(kLeastStep - 8);
  __m512i low = _mm512_sub_epi16(
      _mm512_max_epi16(least, _mm512_sub_epi16(most, words(4 * form.max_width + 3))), words(1));
  // 2^6 steps from `low` reach past the largest that can be needed; count down from there.
  const __m512i room = words(form.nibbles);
  const auto sum_at = [&](__m512i q) HWY_ATTR {
    __m512i sum = _mm512_setzero_si512();
    for (int k = 0; k < kTiles; ++k) {
      sum = _mm512_add_epi16(sum, _mm512_srli_epi16(_mm512_subs_epu16(need[k], q), 2));
    }
    return sum;
  };
  for (int step = 32; step > 0; step /= 2) {
    const __m512i middle = _mm512_add_epi16(low, words(step));
    const __mmask32 too_small = _mm512_cmpgt_epi16_mask(sum_at(middle), room);
    low = _mm512_mask_mov_epi16(low, too_small, middle);
  }
  const __m512i q = _mm512_add_epi16(low, words(1));
  const __m512i step = _mm512_add_epi16(q, words(8));
  bad |= _mm512_cmpge_epi16_mask(step, words(kNoStep));
  // Widths, what is left over, and the header's words.
  __m512i width[kTiles], left = room;
  for (int k = 0; k < kTiles; ++k) {
    width[k] = _mm512_srli_epi16(_mm512_subs_epu16(need[k], q), 2);
    left = _mm512_sub_epi16(left, width[k]);
  }
  __m512i header[4] = {step, _mm512_setzero_si512(), _mm512_setzero_si512(),
                       _mm512_setzero_si512()};
  header[0] = _mm512_or_si512(step, _mm512_slli_epi16(width[0], 10));
  __m512i odd = _mm512_setzero_si512(), halved = odd, begin = words(form.header_bits() / 8);
  for (int k = 0; k < kTiles; ++k) {
    if (k > 0) {
      const __m512i change = _mm512_add_epi16(_mm512_sub_epi16(width[k], width[k - 1]), words(2));
      const int at = 12 + 2 * k;
      header[at / 16] = _mm512_or_si512(header[at / 16], _mm512_slli_epi16(change, at % 16));
    }
    const __mmask32 more =
        _mm512_cmpgt_epi16_mask(left, words(k)) & _mm512_test_epi16_mask(width[k], width[k]);
    halved = _mm512_mask_add_epi16(halved, more, halved, words(1 << k));
    const __m512i total = _mm512_mask_add_epi16(width[k], more, width[k], words(1));
    odd = _mm512_or_si512(
        odd, _mm512_slli_epi16(_mm512_and_si512(total, words(1)), kTileCol[k] * 4 + kTileRow[k]));
    const auto store = [](std::uint8_t* to, __m512i v) HWY_ATTR {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(v));
    };
    store(io.width[k], total);
    store(io.begin[k], begin);
    begin = _mm512_add_epi16(begin, _mm512_srli_epi16(total, 1));
    if (k + 1 == kTiles) store(io.begin[16], begin);
  }
  _mm512_store_si512(io.odd, odd);
  _mm512_store_si512(io.halved, halved);
  for (int h = 0; h < 2; ++h) {
    const auto half = [&](__m512i v) HWY_ATTR {
      return _mm512_cvtepu16_epi32(h == 0 ? _mm512_castsi512_si256(v)
                                          : _mm512_extracti64x4_epi64(v, 1));
    };
    const __m512 steps = _mm512_castsi512_ps(_mm512_slli_epi32(half(step), kStepShift));
    _mm512_store_ps(io.inverse + 16 * h, _mm512_div_ps(_mm512_set1_ps(1.0f), steps));
    const __m512i below = _mm512_or_si512(half(header[0]), _mm512_slli_epi32(half(header[1]), 16));
    const __m512i above = half(header[2]);
    const __m512i index = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_store_si512(io.header + 16 * h, _mm512_permutex2var_epi32(below, index, above));
    _mm512_store_si512(
        io.header + 16 * h + 8,
        _mm512_permutex2var_epi32(below, _mm512_add_epi32(index, _mm512_set1_epi32(8)), above));
  }
  return bad;
}

// By width: the bits of four values that go to the bytes, all but the lowest of an odd width.
constexpr std::array<std::uint64_t, 16> kWholePairs = [] {
  std::array<std::uint64_t, 16> table{};
  for (unsigned w = 0; w < 16; ++w) {
    const std::uint64_t bits = ((1u << w) - 1) & ~(w % 2);
    table[w] = bits * 0x0001000100010001u;
  }
  return table;
}();

// The codes of two blocks.
HWY_INLINE void quantize_two(const Form& form, int block, PackBuffers& io) {
  const int lane = lane_of(block), next = lane_of(block + 1);
  const auto factors = [&](int at) HWY_ATTR {
    const __m512 inverse = _mm512_set1_ps(io.inverse[at]);
    return _mm512_mask_add_ps(inverse, static_cast<__mmask16>(io.halved[at]), inverse, inverse);
  };
  const __m512 left = factors(lane), right = factors(next);
  const int pair = block / 2;
  std::uint64_t lowest[2] = {};  // of both blocks, by two columns of tiles
  for (int j = 0; j < 4; ++j) {
    const __m512 factor =
        _mm512_permutex2var_ps(left, _mm512_load_si512(kTileOfLane[j].data()), right);
    __m512i codes[2];
    for (int i = 0; i < 2; ++i) {
      const __m512 z = _mm512_load_ps(io.z[pair][2 * j + i]);
      // The first coefficient is rounded to the nearest.
      const __m512 scaled =
          j == 0 && i == 0
              ? _mm512_fmadd_ps(z, factor, _mm512_maskz_mov_ps(kFirstLanes, _mm512_set1_ps(0.5f)))
              : _mm512_mul_ps(z, factor);
      codes[i] = _mm512_cvt_roundps_epi32(scaled, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    }
    if (j == 0) {
      // It may round up to one more than its width holds.
      const int widths[2] = {io.width[0][lane] + form.dc - 1, io.width[0][next] + form.dc - 1};
      const __m512i largest = _mm512_mask_set1_epi32(_mm512_set1_epi32((1 << widths[0]) - 1),
                                                     0xfff0, (1 << widths[1]) - 1);
      codes[0] = _mm512_mask_min_epi32(codes[0], kFirstLanes, codes[0], largest);
      _mm512_store_si512(io.first[pair], codes[0]);
    }
    const __m512i both =
        _mm512_mask_blend_epi16(0xAAAAAAAA, codes[0], _mm512_slli_epi32(codes[1], 16));
    _mm512_store_si512(io.codes[pair] + 64 * j, both);
    lowest[j / 2] |= static_cast<std::uint64_t>(_mm512_test_epi16_mask(both, _mm512_set1_epi16(1)))
                     << (j % 2 * 32);
  }
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t mine = std::uint64_t{0x00ff00ff00ff00ff} << (8 * i);
    io.lowest[block + i] = _pext_u64(lowest[0], mine) | _pext_u64(lowest[1], mine) << 32;
  }
}

// Writes one block where there are zeros, and zeros up to 8 bytes behind it.
template <int kTiles>
HWY_INLINE void write_block(const Form& form, const PackBuffers& from, int block,
                            std::uint8_t* out) {
  const int lane = lane_of(block);
  const std::int32_t first = from.first[block / 2][block % 2 * 4];
  const std::uint64_t dc = static_cast<std::uint64_t>(first >> from.width[0][lane]) &
                           ((std::uint64_t{1} << form.dc) - 1);
  const int low_dc = form.header_bits() % 8;
  put64(out, from.header[lane] | dc >> low_dc << (12 + 2 * kTiles));
  const std::uint8_t* codes = from.codes[block / 2] + block % 2 * 16;
  for (int k = 0; k < kTiles; ++k) {
    const std::size_t width = from.width[k][lane], begin = from.begin[k][lane];
    put64(out + begin, _pext_u64(get64(codes + tile_offset(k, 0)), kWholePairs[width]));
  }
  std::uint8_t* end = out + from.begin[16][lane];
  const std::uint64_t tail =
      _pext_u64(from.lowest[block], _pdep_u64(from.odd[lane], kNibbles) * 15);
  if (low_dc != 0) {
    put64(end, tail << 4 | (dc & 15));
    end[8] = static_cast<std::uint8_t>(tail >> 60);
  } else {
    put64(end, tail);
  }
}

// Packs batches one after the other. The bytes of one are written while the next is transformed:
// the one is work for the integer units, the other for vectors.
template <int kTiles>
class Packer {
 public:
  // `out` takes whole blocks in order.
  HWY_INLINE Packer(const PackJob& job, std::uint8_t* out)
      : p_(job.params), stream_(job.stream), out_(out) {}

  // `ahead` is where what is read next lies, or null.
  HWY_ATTR HWY_NOINLINE void add(const Batch<const float>& in, const char* ahead) {
    for (int b = 0; b < kBatch; b += 2) {
      // Lanes without a block repeat the first.
      const float* left = in.at[b < in.count ? b : 0];
      const float* right = in.at[b + 1 < in.count ? b + 1 : 0];
      if (ahead != nullptr) {
        for (int i = 0; i < 8; ++i) __builtin_prefetch(ahead + (4 * b + i) * 64, 0, 2);
      }
      if (p_.offset == 0) {
        transform_two<false>(left, right, in.row, 0, b, buffers_);
      } else {
        transform_two<true>(left, right, in.row, p_.offset, b, buffers_);
      }
      if (b < count_) write_block<kTiles>(p_.form, buffers_, b, bytes_ + b * p_.form.bytes);
      if (b + 1 < count_) {
        write_block<kTiles>(p_.form, buffers_, b + 1, bytes_ + (b + 1) * p_.form.bytes);
      }
    }
    release();
    for (int b = 0; b < kBatch; ++b) {
      const float first = buffers_.z[b / 2][0][b % 2 * 4];
      buffers_.first_level[lane_of(b)] =
          static_cast<std::uint16_t>(level_of(bits_of(first) & ~kSignBit));
    }
    marked_ = search<kTiles>(p_.form, buffers_);
    count_ = in.count;
    for (int b = 0; b < count_; b += 2) quantize_two(p_.form, b, buffers_);
  }

  HWY_ATTR HWY_NOINLINE void finish() {
    for (int b = 0; b < count_; ++b) {
      write_block<kTiles>(p_.form, buffers_, b, bytes_ + b * p_.form.bytes);
    }
    release();
  }

 private:
  // The written bytes of a batch go out.
  HWY_INLINE void release() {
    const auto size = static_cast<std::size_t>(p_.form.bytes);
    for (int b = 0; HWY_UNLIKELY(marked_ != 0) && b < count_; ++b) {
      if ((marked_ >> lane_of(b) & 1) == 0) continue;
      std::memset(bytes_ + b * p_.form.bytes, 0, size);
      const std::uint16_t mark = kNotFinite;
      std::memcpy(bytes_ + b * p_.form.bytes, &mark, sizeof(mark));
    }
    if (stream_) {
      tuckfold::HWY_NAMESPACE::stream_lines(reinterpret_cast<char*>(out_),
                                            reinterpret_cast<const char*>(bytes_),
                                            static_cast<std::size_t>(count_) * size);
    } else {
      std::memcpy(out_, bytes_, static_cast<std::size_t>(count_) * size);
    }
    std::memset(bytes_, 0, kBatch * size);
    out_ += count_ * p_.form.bytes;
    count_ = 0;
  }

  const Params& p_;
  bool stream_;
  std::uint8_t* out_;
  int count_ = 0;         // blocks whose bytes are still to be written
  __mmask32 marked_ = 0;  // lanes whose block is not finite
  PackBuffers buffers_;
  alignas(64) std::uint8_t bytes_[kBatch * kMaxWideBytes + 64] = {};
};

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
