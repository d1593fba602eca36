// dct_quant's unpacking kernel with a block in each lane.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_LANES_UNPACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_LANES_UNPACK_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_LANES_UNPACK_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_LANES_UNPACK_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/dct_quant/dct_quant_lanes_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_LANES
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

struct Headers {
  I q;             // the step
  IMask readable;  // where not, all widths are zero
  IMask nothing;   // zeros throughout
  I width[16];     // with the bit that was left over
  IMask more[16];  // whether there is one
};

HWY_INLINE void read_headers(const Form& form, Headers& headers, Fields& fields) {
  const LI d;
  const I half[2] = {load(fields.header[0]), load(fields.header[1])};
  headers.q = hn::And(half[0], ints(1023));
  I given[16], least = hn::Zero(d), most = hn::Zero(d), left = ints(form.nibbles);
  for (int k = 0; k < form.tiles; ++k) {
    const I field = hn::ShiftRightSame(half[k < 10 ? 0 : 1], k == 0 ? 10 : (12 + 2 * k) % 32);
    given[k] = k == 0 ? hn::Add(hn::And(field, ints(15)), ints(form.bias))
                      : hn::Add(given[k - 1], hn::Sub(hn::And(field, ints(3)), ints(2)));
    least = hn::Min(least, given[k]);
    most = hn::Max(most, given[k]);
    left = hn::Sub(left, given[k]);
  }
  const I zero = hn::Zero(d);
  const IMask fits =
      hn::Not(hn::Or(hn::Lt(hn::Min(least, left), zero), hn::Gt(most, ints(form.max_width))));
  const IMask known =
      hn::And(hn::Gt(headers.q, ints(kLeastStep - 1)), hn::Lt(headers.q, ints(kNoStep)));
  headers.readable = hn::And(fits, known);
  headers.nothing = hn::And(fits, hn::Eq(headers.q, ints(form.bias > 0 ? kNothing : -1)));
  for (int k = 0; k < form.tiles; ++k) {
    const I width = hn::IfThenElseZero(headers.readable, given[k]);
    headers.more[k] = halved(width, left, k);
    headers.width[k] = hn::Sub(width, hn::VecFromMask(d, headers.more[k]));
    store(hn::AndNot(ints(1), headers.width[k]), fields.width[k]);
  }
  I bits = zero;
  for (int i = 0; i < 8; ++i) {
    const int k = kTileAt[i];
    if (k < form.tiles) bits = hn::Add(bits, hn::ShiftLeft<2>(hn::And(headers.width[k], ints(1))));
  }
  store(bits, fields.tail_bits);
}

HWY_INLINE std::int32_t low_word(std::uint64_t value) { return static_cast<std::int32_t>(value); }

// The bytes that follow the header of one block, whose widths are known; kLong as long_tiles. Reads
// up to 16 bytes after them.
template <bool kLong>
HWY_INLINE void read_lane(const Form& form, const std::uint8_t* in, int lane, Fields& to) {
  const int low_dc = form.header_bits() % 8;
  std::uint64_t dc = get64(in) >> (12 + 2 * form.tiles) << low_dc;
  in += form.header_bits() / 8;
  for (int k = 0; k < form.tiles; ++k) {
    const int width = to.width[k][lane];
    const std::uint64_t first = get64(in);
    const std::uint64_t second =
        kLong ? get64(in + width / 4) >> (width % 4 * 2) : first >> (2 * width);
    to.code[k][0][lane] = low_word(first);
    to.code[k][1][lane] = low_word(first >> width);
    to.code[k][2][lane] = low_word(second);
    to.code[k][3][lane] = low_word(second >> width);
    in += width / 2;
  }
  std::uint64_t tail = get64(in);
  if (low_dc != 0) {
    dc |= tail & 15;
    tail = tail >> 4 | static_cast<std::uint64_t>(in[8]) << 60;
  }
  to.upper[lane] = low_word(dc);
  to.tail[0][lane] = low_word(tail);
  to.tail[1][lane] = low_word(tail >> to.tail_bits[lane]);
}

// The first coefficients, from codes in two parts, since they may have more than 32 bits; NaN where
// nothing can be read.
HWY_INLINE F restore_first(const Form& form, const Headers& headers, const Fields& fields, I lowest,
                           F step) {
  const LI d;
  const LF df;
  const I width = headers.width[0], odd = hn::And(width, ints(1));
  const I code = hn::Or(hn::Shl(load(fields.code[0][0]), odd), hn::And(lowest, odd));
  const I lower = hn::AndNot(hn::Shl(ints(-1), width), code);
  const I top = hn::ShiftLeftSame(load(fields.upper), 32 - form.dc);
  const F upper = hn::ConvertTo(df, hn::ShiftRightSame(top, 32 - form.dc));
  const F number = hn::MulAdd(upper, power_of_two(width), hn::ConvertTo(df, lower));
  const F other =
      hn::IfThenZeroElse(hn::RebindMask(df, headers.nothing), floats(float_of(kNanBits)));
  return hn::IfThenElse(hn::RebindMask(df, headers.readable), hn::Mul(number, step), other);
}

HWY_INLINE void restore(const Form& form, const Headers& headers, const Fields& fields, F* z) {
  const LI d;
  const LF df;
  I lowest[16];  // bit t: that of value t, 0 for even widths; others above
  for (int half = 0; half < 2; ++half) {
    I tail = load(fields.tail[half]);
    for (int i = 0; i < 8; ++i) {
      const int k = kTileAt[8 * half + i];
      if (k >= form.tiles) continue;
      const I odd = hn::And(headers.width[k], ints(1));
      lowest[k] = hn::And(tail, hn::Neg(odd));
      tail = hn::Shr(tail, hn::ShiftLeft<2>(odd));
    }
  }
  const F step = as_floats(hn::ShiftLeft<kStepShift>(headers.q));
  const F finer = hn::Mul(floats(0.5f), step);
  for (int i = 0; i < 64; ++i) z[i] = hn::Zero(df);
  for (int k = 0; k < form.tiles; ++k) {
    const F own = hn::IfThenElse(hn::RebindMask(df, headers.more[k]), finer, step);
    const F half = hn::Mul(floats(0.5f), own);
    const I width = headers.width[k], above = hn::Sub(ints(31), width);
    const I above_even = hn::Add(above, hn::And(width, ints(1)));
    // A bit for the half that is added; none where there is no code.
    const I added = hn::IfThenZeroElse(hn::Eq(width, hn::Zero(d)), hn::Shl(ints(1), above));
    for (int t = 0; t < 4; ++t) {
      const I low = hn::And(hn::ShiftRightSame(lowest[k], t), ints(1));
      const I code = hn::Or(hn::ShiftLeft<1>(load(fields.code[k][t])), low);
      // Shifts the code to the top of the word, which drops the bits above it, and back.
      const I halves = hn::Shr(hn::Or(hn::Shl(code, above_even), added), above);
      z[place(k, t)] = hn::Mul(hn::ConvertTo(df, halves), half);
    }
    if (k == 0) z[0] = restore_first(form, headers, fields, lowest[0], own);
  }
}

// Rows of all blocks; a vector has a row of one block after that.
HWY_INLINE void inverse_rows(const F* z, RowOfEach* half) {
  const LF d;
  F x[8], y[8];
  for (int u = 0; u < 8; ++u) {
    for (int v = 0; v < 8; ++v) y[v] = hn::Mul(z[u * 8 + v], floats(kScale[u * 8 + v]));
    inverse_pass(d, y, x);
    for (int part = 0; part < 8 / kLanes; ++part) {
      F* square = x + part * kLanes;
      transpose(square);
      for (int b = 0; b < kLanes; ++b) hn::Store(square[b], d, half[u][part][b]);
    }
  }
}

// Columns of block b. `numbers`: there is no NaN.
HWY_INLINE void inverse_columns(const Params& p, const RowOfEach* half, int b, float* to,
                                std::int64_t row, bool stream, bool numbers) {
  const LF d;
  F x[8], y[8];
  for (int part = 0; part < 8 / kLanes; ++part, to += kLanes) {
    for (int u = 0; u < 8; ++u) y[u] = hn::Load(d, half[u][part][b]);
    inverse_pass(d, y, x);
    if (p.offset != 0) {
      for (int r = 0; r < 8; ++r) x[r] = hn::Add(x[r], floats(p.offset));
    }
    if (p.clamp) {
      for (int r = 0; r < 8; ++r) x[r] = hn::IfThenZeroElse(hn::Lt(x[r], hn::Zero(d)), x[r]);
    }
    if (!numbers) {
      for (F& value : x) value = canonical(d, value);
    }
    if (stream) {
      for (int r = 0; r < 8; ++r) hn::Stream(x[r], d, to + r * row);
    } else {
      for (int r = 0; r < 8; ++r) hn::StoreU(x[r], d, to + r * row);
    }
  }
}

inline HWY_ATTR HWY_NOINLINE void unpack_lanes(const Params& params, bool stream,
                                               const std::uint8_t* in, const Batch<float>& out) {
  const Params p = params;  // a copy: what is written might else be it
  const Form& form = p.form;
  const int size = out.count * form.bytes;
  // The bytes of the batch after the next, most likely.
  for (int i = 0; i < size; i += 64) __builtin_prefetch(in + 2 * size + i, 0, 2);
  alignas(64)
      std::uint8_t bytes[kBatchBlocks * kMaxBytes + 64];  // may be read beyond the blocks' end
  std::memcpy(bytes, in, static_cast<std::size_t>(size));
  std::memset(bytes + size, 0, 64);
  bool aligned = out.row % kLanes == 0;
  for (int b = 0; b < out.count; ++b) {
    aligned = aligned && reinterpret_cast<std::uintptr_t>(out.at[b]) % (4 * kLanes) == 0;
  }
  alignas(64) RowOfEach half[kBatchBlocks / kLanes][8];
  bool numbers = true;
  for (int b = 0; b < out.count; b += kLanes) {
    // Lanes without a block repeat the first.
    const auto block = [&](int i) { return bytes + (b + i < out.count ? b + i : 0) * form.bytes; };
    Fields fields;
    Headers headers;
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t header = get64(block(i));
      fields.header[0][i] = low_word(header);
      fields.header[1][i] = low_word(header >> 32);
    }
    read_headers(form, headers, fields);
    const IMask tame = hn::And(headers.readable, hn::Lt(headers.q, ints(kHugeStep)));
    numbers = numbers && hn::AllTrue(LI(), tame);
    for (int i = 0; i < kLanes; ++i) {
      if (long_tiles(form)) {
        read_lane<true>(form, block(i), i, fields);
      } else {
        read_lane<false>(form, block(i), i, fields);
      }
    }
    F z[64];
    restore(form, headers, fields, z);
    inverse_rows(z, half[b / kLanes]);
  }
  // Separately, because other stores wait for streaming ones.
  for (int b = 0; b < out.count; ++b) {
    inverse_columns(p, half[b / kLanes], b % kLanes, out.at[b], out.row, stream && aligned,
                    numbers);
  }
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_LANES

#endif  // include guard
