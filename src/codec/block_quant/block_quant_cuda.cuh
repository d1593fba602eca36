// Shared by block_quant's kernels: the dense tensors of a launch, and their common parameters.
#pragma once

#include <cstdint>

#include "base/cuda/tensor_table.cuh"
#include "codec/block_quant/block_quant_block.h"
#include "codec/blocks/vectors_cuda.cuh"

namespace tuckfold::block_quant {

using cuda::kAllLanes;
using cuda::kVector;
using cuda::kWarp;

// A dense tensor and its packed bytes.
struct DenseTensor {
  char* data;  // at any address of an element
  std::byte* codes;
  std::byte* headers;
  std::int64_t elems;
  std::uint32_t first_cta;
  std::uint32_t number;  // among the tensors of the call: what is added to the seed
};

struct Settings {
  std::int64_t group;
  std::uint64_t seed;
  const std::uint64_t* device_seed;  // what is added to it, or null
  int bits;
  int group_shift;  // -1: the group is no power of two
  bool exact_zero;

  __device__ std::uint64_t seed_of(const DenseTensor& tensor) const {
    return seed + tensor.number + (device_seed != nullptr ? *device_seed : 0);
  }
};

template <int kMost>
struct Tensors : cuda::TensorTable<DenseTensor, kMost> {
  Settings settings;
};
inline constexpr int kMostTensors = cuda::kMostTensors<DenseTensor>;

}  // namespace tuckfold::block_quant
