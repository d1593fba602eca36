// dct_quant's packing kernel with a block in each lane.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_LANES_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_LANES_PACK_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_LANES_PACK_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_LANES_PACK_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/dct_quant/dct_quant_lanes_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_LANES
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

// Columns of block b, while a vector has a row of it, or a part of one.
HWY_INLINE void forward_columns(const float* from, std::int64_t row, float offset, int b,
                                RowOfEach* half) {
  const LF d;
  F x[8], y[8];
  for (int part = 0; part < 8 / kLanes; ++part, from += kLanes) {
    for (int r = 0; r < 8; ++r) x[r] = hn::Sub(hn::LoadU(d, from + r * row), floats(offset));
    forward_pass(d, x, y);
    for (int u = 0; u < 8; ++u) hn::Store(y[u], d, half[u][part][b]);
  }
}

// Rows of all blocks; a vector has one value of each from here on.
HWY_INLINE void forward_rows(const RowOfEach* half, F* z) {
  const LF d;
  F x[8], y[8];
  for (int u = 0; u < 8; ++u) {
    for (int part = 0; part < 8 / kLanes; ++part) {
      F* square = x + part * kLanes;
      for (int b = 0; b < kLanes; ++b) square[b] = hn::Load(d, half[u][part][b]);
      transpose(square);
    }
    forward_pass(d, x, y);
    for (int v = 0; v < 8; ++v) z[u * 8 + v] = hn::Mul(y[v], floats(kScale[u * 8 + v]));
  }
}

struct Choice {
  I q;            // the step
  IMask bad;      // not finite
  IMask nothing;  // zeros throughout
  I given[16];    // widths
  I left;         // nibbles that these leave over
};

// As choose_step. Once neighbours' needs are limited, a width is at least the previous one minus 2
// by itself, except for what the least width of tile 0 demands of the next ones.
HWY_INLINE void choose_steps(const Form& form, const F* z, Choice& choice) {
  const auto magnitude = [&](int i) HWY_ATTR {
    return hn::And(hn::BitCast(LU(), z[i]), hn::Set(LU(), ~kSignBit));
  };
  const auto need_of = [](U of) HWY_ATTR {  // level_of, and 8 more
    return hn::BitCast(
        LI(), hn::ShiftRight<kStepShift>(hn::Add(of, hn::Set(LU(), 1 + (8u << kStepShift)))));
  };
  const int tiles = form.tiles;
  I need[16];
  U all = magnitude(0);
  const I first = need_of(all);
  I most = hn::Zero(LI());
  for (int k = 0; k < tiles; ++k) {
    U largest = magnitude(place(k, 1));
    for (int t = k == 0 ? 2 : 0; t < 4; ++t) largest = hn::Max(largest, magnitude(place(k, t)));
    all = hn::Max(all, largest);
    need[k] = need_of(largest);
    most = hn::Max(most, need[k]);
  }
  choice.nothing = hn::Eq(hn::BitCast(LI(), all), hn::Zero(LI()));
  choice.bad = hn::Gt(hn::Max(most, first), ints(kNoStep + 7));
  need[0] = hn::Max(need[0], hn::Sub(first, ints(4 * form.dc)));
  most = hn::Max(most, need[0]);
  for (int k = tiles - 1; k > 0; --k) {
    need[k - 1] = hn::Max(need[k - 1], hn::Sub(need[k], ints(4)));
  }
  for (int k = 1; k < tiles; ++k) need[k] = hn::Max(need[k], hn::Sub(need[k - 1], ints(8)));
  const auto width_at = [&](int k, I q) HWY_ATTR {
    return hn::Max(hn::ShiftRight<2>(hn::Sub(need[k], q)), ints(std::max(form.bias - 2 * k, 0)));
  };
  // The largest step known to be too small.
  I low = hn::Sub(hn::Max(ints(kLeastStep), hn::Sub(most, ints(4 * form.max_width + 3))), ints(1));
  for (int step = form.max_width < 16 ? 32 : 64; step > 0; step /= 2) {
    const I middle = hn::Add(low, ints(step));
    I sum = width_at(0, middle);
    for (int k = 1; k < tiles; ++k) sum = hn::Add(sum, width_at(k, middle));
    low = hn::IfThenElse(hn::Gt(sum, ints(form.nibbles)), middle, low);
  }
  choice.q = hn::Add(low, ints(1));
  choice.bad = hn::Or(choice.bad, hn::Gt(choice.q, ints(kNoStep - 1)));
  choice.left = ints(form.nibbles);
  for (int k = 0; k < tiles; ++k) {
    choice.given[k] = width_at(k, choice.q);
    choice.left = hn::Sub(choice.left, choice.given[k]);
  }
}

// As first_code_of, in two parts, because it may have more than 32 bits: the lower `width` of them
// are the result.
HWY_INLINE I first_codes(const Form& form, F z, F inverse, I width, Fields& fields) {
  const LI d;
  const F code = hn::Floor(hn::MulAdd(z, inverse, floats(0.5f)));
  const F upper = hn::Floor(hn::Mul(code, power_of_two(hn::Neg(width))));
  const F lower = hn::Sub(code, hn::Mul(upper, power_of_two(width)));
  const I largest = ints((1 << (form.dc - 1)) - 1), number = hn::ConvertTo(d, upper);
  store(hn::And(hn::Min(number, largest), ints((1 << form.dc) - 1)), fields.upper);
  return hn::IfThenElse(hn::Gt(number, largest), ints(-1), hn::ConvertTo(d, lower));
}

HWY_INLINE void quantize(const Form& form, const F* z, const Choice& choice, Fields& fields) {
  const LI d;
  const F inverse = hn::Div(floats(1), as_floats(hn::ShiftLeft<kStepShift>(choice.q)));
  const F finer = hn::Add(inverse, inverse);
  I lowest[16], odd[16];  // bit t: that of value t, 0 for even widths
  I header[2] = {choice.q, hn::Zero(d)};
  if (form.bias > 0) header[0] = hn::IfThenZeroElse(choice.nothing, header[0]);
  for (int k = 0; k < form.tiles; ++k) {
    const I given = choice.given[k];
    const I change = k == 0 ? hn::Sub(given, ints(form.bias))
                            : hn::Add(hn::Sub(given, choice.given[k - 1]), ints(2));
    I& half = header[k < 10 ? 0 : 1];
    half = hn::Or(half, hn::ShiftLeftSame(change, k == 0 ? 10 : (12 + 2 * k) % 32));
    const IMask more = halved(given, choice.left, k);
    const F factor = hn::IfThenElse(hn::RebindMask(LF(), more), finer, inverse);
    const I width = hn::Sub(given, hn::VecFromMask(d, more));
    odd[k] = hn::And(width, ints(1));
    const I even = hn::Sub(width, odd[k]), outside = hn::Shl(ints(-1), even);
    store(even, fields.width[k]);
    lowest[k] = hn::Zero(d);
    for (int t = 3; t >= 0; --t) {
      const F value = z[place(k, t)];
      const I code = k == 0 && t == 0 ? first_codes(form, value, factor, width, fields)
                                      : hn::ConvertTo(d, hn::Floor(hn::Mul(value, factor)));
      store(hn::AndNot(outside, hn::Shr(code, odd[k])), fields.code[k][t]);
      lowest[k] = hn::Add(hn::Add(lowest[k], lowest[k]), hn::And(code, odd[k]));
    }
  }
  for (int half = 0; half < 2; ++half) {
    I tail = hn::Zero(d), bits = hn::Zero(d);
    for (int i = 0; i < 8; ++i) {
      const int k = kTileAt[8 * half + i];
      if (k >= form.tiles) continue;
      tail = hn::Or(tail, hn::Shl(lowest[k], bits));
      bits = hn::Add(bits, hn::ShiftLeft<2>(odd[k]));
    }
    store(tail, fields.tail[half]);
    if (half == 0) store(bits, fields.tail_bits);
    store(header[half], fields.header[half]);
  }
}

HWY_INLINE std::uint64_t bits_at(const std::int32_t* field, int lane) {
  return static_cast<std::uint32_t>(field[lane]);
}

// Writes one block over zeros, and zeros up to 16 bytes after it.
HWY_INLINE void write_lane(const Form& form, const Fields& from, int lane, std::uint8_t* out) {
  const std::uint64_t dc = bits_at(from.upper, lane);
  const int low_dc = form.header_bits() % 8;
  put64(out, bits_at(from.header[0], lane) | bits_at(from.header[1], lane) << 32 |
                 dc >> low_dc << (12 + 2 * form.tiles));
  out += form.header_bits() / 8;
  for (int k = 0; k < form.tiles; ++k) {
    const int width = from.width[k][lane];
    const auto two = [&](int t) {
      return bits_at(from.code[k][t], lane) | bits_at(from.code[k][t + 1], lane) << width;
    };
    put64(out, two(0) | two(2) << (2 * width));
    if (long_tiles(form)) put64(out + 8, two(2) >> 1 >> (63 - 2 * width));
    out += width / 2;
  }
  const std::uint64_t second = bits_at(from.tail[1], lane) << from.tail_bits[lane];
  const std::uint64_t tail = bits_at(from.tail[0], lane) | second;
  put64(out, low_dc == 0 ? tail : tail << 4 | (dc & 15));
  if (low_dc != 0) out[8] = static_cast<std::uint8_t>(tail >> 60);
}

// Packs batches one after the other.
class LanePacker {
 public:
  // `out` takes whole blocks in order.
  LanePacker(const PackJob& job, std::uint8_t* out)
      : p_(job.params), stream_(job.stream), out_(out) {}

  // `ahead` is the address that is read next, or null.
  HWY_ATTR HWY_NOINLINE void add(const Batch<const float>& in, const char* ahead) {
    const Form form = p_.form;  // a copy: what is written might else be it
    const auto size = static_cast<std::size_t>(in.count * form.bytes);
    std::memset(bytes_, 0, size);
    for (int b = 0; b < in.count; b += kLanes) {
      if (ahead != nullptr) {
        for (int i = 0; i < 4 * kLanes; ++i) __builtin_prefetch(ahead + (4 * b + i) * 64, 0, 2);
      }
      alignas(64) RowOfEach half[8];
      for (int i = 0; i < kLanes; ++i) {
        // Lanes without a block repeat the first.
        forward_columns(in.at[b + i < in.count ? b + i : 0], in.row, p_.offset, i, half);
      }
      F z[64];
      forward_rows(half, z);
      Choice choice;
      choose_steps(form, z, choice);
      Fields fields;
      quantize(form, z, choice, fields);
      alignas(64) std::int32_t bad[kLanes];
      store(hn::VecFromMask(LI(), choice.bad), bad);
      for (int i = 0; i < kLanes && b + i < in.count; ++i) {
        std::uint8_t* block = bytes_ + (b + i) * form.bytes;
        write_lane(form, fields, i, block);
        if (HWY_UNLIKELY(bad[i] != 0)) put_mark(form, block);
      }
    }
    put_bytes(out_, bytes_, size, stream_);
    out_ += size;
  }
  void finish() {}

 private:
  const Params& p_;
  bool stream_;
  std::uint8_t* out_;
  alignas(64) std::uint8_t bytes_[kBatchBlocks * kMaxBytes + 64];
};

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_LANES

#endif  // include guard
