// shuffle on the CPU, in batches that stay in the L1 cache: residuals as words, then each of their
// bytes to its place; and back, with the values above read from the output.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/shuffle/shuffle_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "codec/blocks/batch_cpu-inl.h"
#include "codec/shuffle/shuffle.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::shuffle::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tuckfold::HWY_NAMESPACE::kAheadBytes;
using tuckfold::HWY_NAMESPACE::kBatchElems;
using tuckfold::HWY_NAMESPACE::put;
using tuckfold::HWY_NAMESPACE::take;

// Byte k of word i goes to out[k * apart + i].
template <class Word>
HWY_ATTR void split_bytes(const Word* words, std::int64_t count, std::int64_t apart,
                          std::uint8_t* out) {
  const hn::ScalableTag<Word> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if constexpr (sizeof(Word) == 1) {
    std::memcpy(out, words, static_cast<std::size_t>(count));
  } else {
    for (std::size_t k = 0; k < sizeof(Word); ++k, out += apart) {
      std::int64_t i = 0;
      for (; i + lanes <= count; i += lanes) {
        if (k == 0) {
          __builtin_prefetch(reinterpret_cast<const char*>(words + i) + kAheadBytes, 0, 0);
        }
        // Truncating saturates on some targets: only the byte may be left.
        const auto one =
            hn::And(hn::ShiftRightSame(hn::LoadU(d, words + i), static_cast<int>(8 * k)),
                    hn::Set(d, Word{0xff}));
        hn::StoreU(hn::TruncateTo(bytes, one), bytes, out + i);
      }
      for (; i < count; ++i) out[i] = static_cast<std::uint8_t>(words[i] >> (8 * k));
    }
  }
}

// Bytes as words of the tag's type; there is no such step from 8 to 64 bits.
template <class D, class Bytes>
HWY_ATTR hn::Vec<D> widened(D d, Bytes bytes) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<std::uint32_t, D>(), bytes));
  } else {
    return hn::PromoteTo(d, bytes);
  }
}

template <class Word>
HWY_ATTR void join_bytes(const std::uint8_t* in, std::int64_t count, std::int64_t apart,
                         Word* words) {
  const hn::ScalableTag<Word> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if constexpr (sizeof(Word) == 1) {
    std::memcpy(words, in, static_cast<std::size_t>(count));
  } else {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      auto word = widened(d, hn::LoadU(bytes, in + i));
      for (std::size_t k = 1; k < sizeof(Word); ++k) {
        const auto one =
            widened(d, hn::LoadU(bytes, in + static_cast<std::int64_t>(k) * apart + i));
        word = hn::Or(word, hn::ShiftLeftSame(one, static_cast<int>(8 * k)));
      }
      hn::StoreU(word, d, words + i);
    }
    for (; i < count; ++i) {
      Word word = 0;
      for (std::size_t k = 0; k < sizeof(Word); ++k) {
        word = static_cast<Word>(
            word | static_cast<Word>(in[static_cast<std::int64_t>(k) * apart + i]) << (8 * k));
      }
      words[i] = word;
    }
  }
}

// Values [at - 1, at + count) of a row's run, the first one 0 where there is none.
template <class Word>
const Word* with_left(const FlatReader& in, std::int64_t at, std::int64_t count, bool has_left,
                      Word* gathered) {
  if (has_left) return take(in, at - 1, count + 1, gathered);
  gathered[0] = 0;
  in.gather_bytes(at, count, gathered + 1);
  return gathered;
}

// A run of values within a plane: `left` begins one value before it, `up` one before the values
// above it.
template <class Word, Delta kDelta>
HWY_ATTR void subtract(const Word* left, const Word* up, bool first_row, std::int64_t count,
                       Word* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    Neighbours<Word> near{.left = left[i]};
    if (!first_row) near.up = up[i + 1], near.corner = up[i];
    out[i] = residual(kDelta, left[i + 1], predicted(kDelta, first_row, near));
  }
}

// The same back; `values` begins one before the run.
template <class Word, Delta kDelta>
HWY_ATTR void add(const Word* residuals, const Word* up, bool first_row, std::int64_t count,
                  Word* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    Neighbours<Word> near{.left = values[i]};
    if (!first_row) near.up = up[i + 1], near.corner = up[i];
    values[i + 1] = restored(kDelta, residuals[i], predicted(kDelta, first_row, near));
  }
}

// The position of a value in its plane, and the end of the delta's first row.
struct Place {
  std::int64_t in_plane;
  bool first_row;
  std::int64_t run;  // values from here on that are alike
};
inline Place place_of(const Planes& planes, bool has_rows, std::int64_t at, std::int64_t end) {
  const std::int64_t in_plane = at % planes.elems();
  const bool first_row = !has_rows || in_plane < planes.cols;
  const std::int64_t alike = first_row && has_rows ? planes.cols : planes.elems();
  return {in_plane, first_row, std::min({alike - in_plane, end - at, kBatchElems})};
}

template <class Word, Delta kDelta>
HWY_ATTR void pack_as(const PackJob& job, std::int64_t begin, std::int64_t end) {
  constexpr bool kRows = kDelta == Delta::Rows || kDelta == Delta::Plane;
  alignas(64) Word gathered[kBatchElems + 1], above[kBatchElems + 1], residuals[kBatchElems];
  auto* out = reinterpret_cast<std::uint8_t*>(job.out);
  for (std::int64_t at = begin; at < end;) {
    std::int64_t count = std::min(kBatchElems, end - at);
    const Word* words = nullptr;
    if constexpr (kDelta == Delta::None) {
      words = take(*job.in, at, count, gathered);
    } else {
      const Place place = place_of(job.planes, kRows, at, end);
      count = place.run;
      const Word* left = with_left(*job.in, at, count, place.in_plane > 0, gathered);
      const Word* up = above;
      if (!place.first_row) {
        up = with_left(*job.in, at - job.planes.cols, count, place.in_plane > job.planes.cols,
                       above);
      }
      subtract<Word, kDelta>(left, up, place.first_row, count, residuals);
      words = residuals;
    }
    split_bytes(words, count, job.in->elems(), out + at);
    at += count;
  }
}

template <class Word, Delta kDelta>
HWY_ATTR void unpack_as(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  constexpr bool kRows = kDelta == Delta::Rows || kDelta == Delta::Plane;
  alignas(64) Word residuals[kBatchElems], above[kBatchElems + 1], values[kBatchElems + 1];
  const auto* in = reinterpret_cast<const std::uint8_t*>(job.packed);
  values[0] = 0;
  for (std::int64_t at = begin; at < end;) {
    std::int64_t count = std::min(kBatchElems, end - at);
    if constexpr (kDelta == Delta::None) {
      join_bytes(in + at, count, job.out->elems(), values);
      put(*job.out, at, count, values, false);
    } else {
      const Place place = place_of(job.planes, kRows, at, end);
      // The values above must have been written.
      count = place.first_row ? place.run : std::min(place.run, job.planes.cols);
      join_bytes(in + at, count, job.out->elems(), residuals);
      const Word* up = above;
      if (!place.first_row) {
        up = with_left(*job.done, at - job.planes.cols, count, place.in_plane > job.planes.cols,
                       above);
      }
      if (place.in_plane == 0) values[0] = 0;
      add<Word, kDelta>(residuals, up, place.first_row, count, values);
      put(*job.out, at, count, values + 1, false);
      values[0] = values[count];
    }
    at += count;
  }
}

template <class Body>
void with_delta(Delta delta, Body&& body) {
  switch (delta) {
    case Delta::None: return body.template operator()<Delta::None>();
    case Delta::Sub: return body.template operator()<Delta::Sub>();
    case Delta::Xor: return body.template operator()<Delta::Xor>();
    case Delta::Rows: return body.template operator()<Delta::Rows>();
    case Delta::Plane: return body.template operator()<Delta::Plane>();
  }
}

void pack_values_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.in->dtype(), [&]<class Word>(Word) {
    with_delta(job.delta, [&]<Delta kDelta>() { pack_as<Word, kDelta>(job, begin, end); });
  });
}

void unpack_values_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.out->dtype(), [&]<class Word>(Word) {
    with_delta(job.delta, [&]<Delta kDelta>() { unpack_as<Word, kDelta>(job, begin, end); });
  });
}

}  // namespace tuckfold::shuffle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold::shuffle {

HWY_EXPORT(pack_values_target);
HWY_EXPORT(unpack_values_target);

void pack_values(const PackJob& job, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(pack_values_target)(job, begin, end);
}

void unpack_values(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(unpack_values_target)(job, begin, end);
}

}  // namespace tuckfold::shuffle
#endif  // HWY_ONCE
