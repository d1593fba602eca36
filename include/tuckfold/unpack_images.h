// Unpacks images as a network takes them: cropped, mirrored, scaled, converted and laid out, in one
// pass over their pixels, on a CPU or a GPU.
//
//   const Plan plan(CodecSpec::parse("dct_quant(rate=4)"), DType::U8, {256, 3, 32, 32});
//   unpack_images(plan, packed, {.windows = windows, .scale = scale, .add = add}, out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tuckfold/codec.h"

namespace tuckfold {

// What a network takes of an image: this part, of the height and width of the output. It may reach
// past the edges, where pixels are 0.
struct Window {
  std::int32_t top = 0, left = 0;
  std::int32_t mirrored = 0;  // 1: left and right change places
};

// Arrays are where the output is. A pixel p of channel c becomes p * scale[c] + add[c].
struct ImagePass {
  const Window* windows = nullptr;  // one for each sample; null: all have the upper left one
  // The image of the output that each sample becomes; null: its own number. Others are left alone.
  const std::int32_t* places = nullptr;
  const float* scale = nullptr;  // null: 1, and 0 for `add`
  const float* add = nullptr;
  bool channels_last = false;  // samples are H x W x C, else C x H x W; with two axes H x W
};

// Samples of the plan, which are u8, u16 or floats of two or three axes after the first, become
// images of `out`: N x C x H x W of f32, f16 or bf16 and any strides. The product and the sum are
// rounded to f32 each, and the result to the dtype: finite numbers beyond its largest become that.
// Values are the same on every device, but for the bits of NaN. On a CUDA device packed bytes start
// at a multiple of 16, a place past the end of the output is left out, and nothing synchronizes.
TUCKFOLD_API void unpack_images(const Plan& plan, std::span<const std::byte> packed,
                                const ImagePass& pass, const TensorView& out,
                                const RunOptions& options = {});
// Scratch that it needs, in place of Layout::workspace_bytes.
TUCKFOLD_API std::size_t unpack_images_workspace(const Plan& plan, Device device);

}  // namespace tuckfold
