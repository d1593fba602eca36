// What is packed of a dense tensor, for the launches of kernels that unpack it and do what follows.
#pragma once

#include <bit>
#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_cuda.cuh"

namespace tuckfold::block_quant {

inline DenseTensor dense_of(const Params& p, const cuda::View& view, const std::byte* packed) {
  auto* codes = const_cast<std::byte*>(packed);
  return {.data = view.data,
          .codes = codes,
          .headers = codes == nullptr ? nullptr : codes + sizes_of(p, view.elems).codes_bytes,
          .elems = view.elems,
          .first_cta = 0,
          .number = 0};
}

inline Settings settings_of(const Params& p) {
  const auto group = static_cast<std::uint64_t>(p.group);
  return {.group = p.group,
          .bits = p.bits,
          .group_shift = std::has_single_bit(group) ? std::countr_zero(group) : -1,
          .exact_zero = p.exact_zero};
}

inline bool is_aligned(const void* at, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(at) % to == 0;
}

}  // namespace tuckfold::block_quant
