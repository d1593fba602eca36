// block_quant on the CPU. Groups are processed in batches that stay in the L1 cache: first all
// ranges and headers, then all codes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/block_quant/block_quant_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_block.h"
#include "codec/block_quant/block_quant_cpu-inl.h"
#include "codec/blocks/bit_packing_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::block_quant::HWY_NAMESPACE {
using tuckfold::HWY_NAMESPACE::spread_codes;
using tuckfold::HWY_NAMESPACE::squeeze_codes;
using tuckfold::HWY_NAMESPACE::with_bits;

// ---- groups -------------------------------------------------------------------------------------

// What the kernels read and write; other dtypes are converted to and from f32.
bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
DType kernel_dtype(DType dtype) { return is_half(dtype) ? dtype : DType::F32; }

// Calls body with OfF16 or OfBF16.
template <class Body>
void with_half(DType dtype, Body&& body) {
  dtype == DType::F16 ? body(OfF16()) : body(OfBF16());
}

// Values [begin, begin + count) of kernel_dtype: a pointer into the tensor if they are contiguous,
// else a gathered copy.
const std::byte* values_at(const FlatReader& in, std::int64_t begin, std::int64_t count,
                           float* gathered) {
  if (in.dtype() == kernel_dtype(in.dtype())) {
    const void* dense = in.dense(begin, count);
    if (dense == nullptr) dense = in.in_thread_panel(begin, count);
    if (dense != nullptr) return static_cast<const std::byte*>(dense);
    in.gather_bytes(begin, count, gathered);
  } else {
    in.gather(begin, count, gathered);
  }
  return reinterpret_cast<const std::byte*>(gathered);
}

void widen_range_of(DType dtype, const std::byte* values, std::int64_t count, Range& range) {
  if (dtype == DType::F32) {
    return widen_range(reinterpret_cast<const float*>(values), count, range);
  }
  with_half(dtype, [&](auto of) {
    widen_range(of, reinterpret_cast<const std::uint16_t*>(values), count, range);
  });
}

// The codes of halves with four bits are packed at once; all others are squeezed later.
template <int B>
bool packs_at_once(DType dtype) {
  return B == 4 && dtype != DType::F32;
}

template <int B, bool kStochastic>
void quantize_of(DType dtype, const std::byte* values, std::int64_t count, const Scaling& s,
                 std::uint32_t key, std::int64_t place, std::uint8_t* codes) {
  constexpr int kLevels = (1 << B) - 1;
  if (dtype == DType::F32) {
    return quantize<kStochastic>(reinterpret_cast<const float*>(values), count, s, kLevels, key,
                                 place, codes);
  }
  with_half(dtype, [&](auto of) {
    quantize<kStochastic, B == 4>(of, reinterpret_cast<const std::uint16_t*>(values), count, s,
                                  kLevels, key, place, codes);
  });
}

// Groups [g, …) of a batch. A group that is longer than a batch is a batch of its own, and is read
// twice.
template <int B>
void pack_batch(const PackJob& job, std::int64_t g, std::int64_t count, std::byte* out) {
  const Params& p = job.params;
  alignas(64) float gathered[kBatchValues];
  alignas(64) std::uint8_t codes[kBatchValues];
  const std::int64_t first = g * p.group;
  const DType dtype = kernel_dtype(job.in->dtype());
  const auto width = static_cast<std::int64_t>(size_bytes(dtype));
  const bool at_once = packs_at_once<B>(dtype);
  const std::byte* values = nullptr;
  const auto load = [&](std::int64_t at, std::int64_t some) {
    values = values_at(*job.in, first + at, some, gathered);
  };
  const auto write_header = [&](std::int64_t group, const Range& range) {
    const Header header =
        range.finite ? header_of(range.low, range.high, B, p.exact_zero) : kNotFinite;
    std::memcpy(job.headers + group * 4, &header, 4);
  };
  // Values [at, at + some) of a group, which are [begin, …) of `codes` and of `to`.
  const auto write_codes = [&](std::int64_t group_index, std::int64_t at, std::int64_t some,
                               const std::byte* from, std::int64_t begin, std::byte* to) {
    Header header;
    std::memcpy(&header, job.headers + group_index * 4, 4);
    const Group group = group_of(header);
    std::uint8_t* own =
        at_once ? reinterpret_cast<std::uint8_t*>(to) + begin * B / 8 : codes + begin;
    if (!(group.scale < float_of(kInfBits))) {
      std::memset(own, 0, static_cast<std::size_t>(at_once ? p.code_bytes(some) : some));
    } else if (p.stochastic) {
      const std::uint32_t key = group_key(job.seed, static_cast<std::uint64_t>(group_index));
      quantize_of<B, true>(dtype, from, some, scaling_of(group), key, at, own);
    } else {
      quantize_of<B, false>(dtype, from, some, scaling_of(group), 0, at, own);
    }
  };
  if (p.group <= kBatchValues) {
    load(0, count);
    // All ranges, then all headers, then all codes: a group's own would wait for each other.
    float lows[kBatchValues / 8], highs[kBatchValues / 8];
    bool finite[kBatchValues / 8];
    std::int64_t groups = 0;
    for (std::int64_t at = 0; at < count; at += p.group, ++groups) {
      Range range;
      widen_range_of(dtype, values + at * width, std::min(p.group, count - at), range);
      lows[groups] = range.low;
      highs[groups] = range.high;
      finite[groups] = range.finite;
    }
    for (std::int64_t i = 0; i < groups; ++i) write_header(g + i, {lows[i], highs[i], finite[i]});
    for (std::int64_t at = 0; at < count; at += p.group) {
      write_codes(g + at / p.group, 0, std::min(p.group, count - at), values + at * width, at, out);
    }
    if (!at_once) squeeze_codes<B>(codes, count, out);
    return;
  }
  Range range;
  for (std::int64_t at = 0; at < count; at += kBatchValues) {
    const std::int64_t some = std::min(kBatchValues, count - at);
    load(at, some);
    widen_range_of(dtype, values, some, range);
  }
  write_header(g, range);
  for (std::int64_t at = 0; at < count; at += kBatchValues) {
    const std::int64_t some = std::min(kBatchValues, count - at);
    load(at, some);
    write_codes(g, at, some, values, 0, out + at * B / 8);
    if (!at_once) squeeze_codes<B>(codes, some, out + at * B / 8);
  }
}

template <int B>
void dequantize_of(DType dtype, bool stream, const std::uint8_t* codes, std::int64_t count,
                   const Group& group, std::byte* out) {
  if (dtype == DType::F32) {
    return (stream ? dequantize<true> : dequantize<false>)(codes, count, group,
                                                           reinterpret_cast<float*>(out));
  }
  with_half(dtype, [&](auto of) {
    auto* halves = reinterpret_cast<std::uint16_t*>(out);
    if (stream) return dequantize<B, true>(of, codes, count, group, halves);
    dequantize<B, false>(of, codes, count, group, halves);
  });
}

// Values of a table are looked up faster than they are computed, but it has to be made.
constexpr std::int64_t kTableGroup = 256;

template <int B>
void unpack_batch(const UnpackJob& job, std::int64_t g, std::int64_t count, const std::byte* in) {
  const Params& p = job.params;
  const DType dtype = kernel_dtype(job.out->dtype());
  const auto width = static_cast<std::int64_t>(size_bytes(dtype));
  alignas(64) std::uint8_t codes[kBatchValues];
  alignas(64) float buffer[kBatchValues];
  for (std::int64_t at = 0; at < count; at += kBatchValues) {
    const std::int64_t some = std::min(kBatchValues, count - at);
    const std::int64_t first = g * p.group + at;
    spread_codes<B>(in + at * B / 8, some, codes);
    void* dense = nullptr;
    bool in_panel = false;
    if (job.out->dtype() == dtype) {
      dense = job.out->dense(first, some);
      in_panel = dense == nullptr;
      if (in_panel) dense = job.out->in_thread_panel(first, some);
    }
    auto* values =
        dense == nullptr ? reinterpret_cast<std::byte*>(buffer) : static_cast<std::byte*>(dense);
    // Groups start at cache lines if the tensor does and they are multiples of one.
    const bool stream = dense != nullptr && !in_panel && job.stream && p.group * width % 64 == 0 &&
                        reinterpret_cast<std::uintptr_t>(dense) % 64 == 0;
    // Calls body(index, begin, end) for the groups of the batch.
    const auto for_each_group = [&](auto&& body) {
      for (std::int64_t i = 0; i < some;) {
        const std::int64_t index = (first + i) / p.group;
        const std::int64_t end = std::min((index + 1) * p.group - first, some);
        body(index, i, end);
        i = end;
      }
    };
    const auto group_at = [&](std::int64_t index) {
      Header header;
      std::memcpy(&header, job.headers + index * 4, 4);
      return group_of(header);
    };
    if (B <= 4 && p.group >= kTableGroup && dtype != DType::F32) {
      // All tables first: values of a group would wait for its own.
      HalfTable tables[kBatchValues / 8];
      const std::int64_t from = first / p.group, groups = (first + some - 1) / p.group - from + 1;
      if constexpr (B <= 4) {
        with_half(dtype,
                  [&](auto of) { make_tables<B>(of, job.headers + from * 4, groups, tables); });
      }
      const HalfTable* table = tables;
      for_each_group([&](std::int64_t, std::int64_t begin, std::int64_t end) {
        auto* to = reinterpret_cast<std::uint16_t*>(values) + begin;
        (stream ? look_up<true> : look_up<false>)(*table++, codes + begin, end - begin, to);
      });
    } else {
      for_each_group([&](std::int64_t index, std::int64_t begin, std::int64_t end) {
        dequantize_of<B>(dtype, stream, codes + begin, end - begin, group_at(index),
                         values + begin * width);
      });
    }
    if (dense != nullptr) continue;
    if (job.out->dtype() == dtype) {
      job.out->scatter_bytes(first, some, buffer);
    } else {
      job.out->scatter(first, some, buffer);
    }
  }
}

// Calls run(first group, values, offset of its codes) for batches of groups [begin, end).
template <class Run>
void for_each_batch(const Params& p, std::int64_t elems, std::int64_t begin, std::int64_t end,
                    Run&& run) {
  const std::int64_t together = std::max<std::int64_t>(kBatchValues / p.group, 1);
  for (std::int64_t g = begin; g < end; g += together) {
    const std::int64_t last = std::min(g + together, end);
    run(g, std::min(last * p.group, elems) - g * p.group, g * p.code_bytes(p.group));
  }
}

void pack_groups_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  with_bits<1, 8>(job.params.bits, [&]<int B>() {
    for_each_batch(job.params, job.in->elems(), begin, end,
                   [&](std::int64_t g, std::int64_t count, std::int64_t at) {
                     pack_batch<B>(job, g, count, job.codes + at);
                   });
  });
}

void unpack_groups_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  with_bits<1, 8>(job.params.bits, [&]<int B>() {
    for_each_batch(job.params, job.out->elems(), begin, end,
                   [&](std::int64_t g, std::int64_t count, std::int64_t at) {
                     unpack_batch<B>(job, g, count, job.codes + at);
                   });
  });
}

}  // namespace tuckfold::block_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::block_quant {

HWY_EXPORT(pack_groups_target);
HWY_EXPORT(unpack_groups_target);

void pack_groups(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(*job.in);
  HWY_DYNAMIC_DISPATCH(pack_groups_target)(job, begin, end);
}

void unpack_groups(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const WritePanels panels(*job.out);
  HWY_DYNAMIC_DISPATCH(unpack_groups_target)(job, begin, end);
  if (job.stream) stream_fence();
}

}  // namespace tuckfold::block_quant
#endif  // HWY_ONCE
