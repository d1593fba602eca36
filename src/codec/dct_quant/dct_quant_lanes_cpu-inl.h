// Shared by dct_quant's kernels with a block in each lane. They take every rate, on every target
// with fused multiply-adds: dct_quant_block.h is repeated with vectors, operation by operation, on
// as many blocks as a vector has lanes. Only bits and bytes are processed by scalar code.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_LANES_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_LANES_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_LANES_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "codec/dct_quant/dct_quant_batch_cpu-inl.h"

// There are no arrays of vectors whose size is known only at run time.
#undef TUCKFOLD_DCT_QUANT_LANES
#define TUCKFOLD_DCT_QUANT_LANES (HWY_NATIVE_FMA && !HWY_HAVE_SCALABLE)

#if TUCKFOLD_DCT_QUANT_LANES
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

using LF = hn::CappedTag<float, 8>;
using LI = hn::RebindToSigned<LF>;
using LU = hn::RebindToUnsigned<LF>;
using F = hn::Vec<LF>;
using I = hn::Vec<LI>;
using U = hn::Vec<LU>;
using IMask = hn::Mask<LI>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(LF()));
constexpr int kMaxBytes = 128;  // of a block
static_assert(kBatchBlocks % kLanes == 0 && 8 % kLanes == 0);

HWY_INLINE F floats(float value) { return hn::Set(LF(), value); }
HWY_INLINE I ints(int value) { return hn::Set(LI(), value); }
HWY_INLINE F as_floats(I v) { return hn::BitCast(LF(), v); }
HWY_INLINE F power_of_two(I exponent) {
  return as_floats(hn::ShiftLeft<23>(hn::Add(exponent, ints(127))));
}

// The intermediate fields between the vectors and the bytes of a group of blocks, by lane.
struct alignas(64) Fields {
  std::int32_t header[2][kLanes];    // its lower and its upper half, up to the widths
  std::int32_t upper[kLanes];        // bits of the first coefficient beyond its tile's
  std::int32_t width[16][kLanes];    // of a tile's values without the lowest bit of odd widths
  std::int32_t code[16][4][kLanes];  // so many bits; unpacking, others above them
  std::int32_t tail[2][kLanes];  // lowest bits of the tiles kTileAt[0 … 7] and kTileAt[8 … 15]
  std::int32_t tail_bits[kLanes];  // how many the former are
};

// Whether a tile may have more than 64 bits.
HWY_INLINE bool long_tiles(const Form& form) { return form.max_width > 15; }

HWY_INLINE I load(const std::int32_t* from) { return hn::Load(LI(), from); }
HWY_INLINE void store(I v, std::int32_t* to) { hn::Store(v, LI(), to); }

// Tiles that get one bit more, as share_out.
HWY_INLINE IMask halved(I given, I left, int k) {
  return hn::And(hn::Gt(left, ints(k)), hn::Gt(given, hn::Zero(LI())));
}

// Lane i of the j-th of kLanes vectors changes places with lane j of the i-th.
HWY_INLINE void transpose(F* v) {
  const LF d;
  const hn::Repartition<double, LF> pairs;
  const auto lower = [&](F a, F b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const auto upper = [&](F a, F b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  for (int i = 0; i < kLanes; i += 4) {  // squares of four
    const F a = hn::InterleaveLower(d, v[i], v[i + 1]), b = hn::InterleaveUpper(d, v[i], v[i + 1]);
    const F e = hn::InterleaveLower(d, v[i + 2], v[i + 3]),
            f = hn::InterleaveUpper(d, v[i + 2], v[i + 3]);
    v[i] = lower(a, e);
    v[i + 1] = upper(a, e);
    v[i + 2] = lower(b, f);
    v[i + 3] = upper(b, f);
  }
  if constexpr (kLanes == 8) {
    for (int i = 0; i < 4; ++i) {
      const F above = v[i], below = v[i + 4];
      v[i] = hn::ConcatLowerLower(d, below, above);
      v[i + 4] = hn::ConcatUpperUpper(d, below, above);
    }
  }
}

// A row of every block, in as many vectors as it takes.
using RowOfEach = float[8 / kLanes][kLanes][kLanes];

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_LANES

#endif  // include guard
