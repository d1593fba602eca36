// The specs that a search for a codec tries: one ladder for each way to use a codec.
#pragma once

#include <vector>

#include "tuckfold/codec.h"

namespace tuckfold {

// The target to reach.
struct Target {
  enum class Kind { Psnr, Ratio, MaxError };
  Kind kind = Kind::Psnr;
  double value = 0;  // dB, times smaller than the array that is packed, or a difference of values
};

// Facts about an array's finite values that decide between specs.
struct Facts {
  double low = 0, high = 0, mean = 0;
  double zeros = 0;  // as a fraction of all values
  double range() const noexcept { return high - low; }
};
// Of row-major values.
Facts facts_of(const ConstTensorView& values);

// Specs of one codec or chain, from the fewest bytes and the largest error to the reverse.
using SpecLadder = std::vector<CodecSpec>;

// In the order of the registry; of equal candidates the earlier is chosen.
std::vector<SpecLadder> ladders_for(const Facts& facts, const Target& target);

// Whether an exact codec refuses some tensors of the shape: it, or a stage of a chain, packs all of
// them to one size, and that is too small to tell them apart.
bool refuses_some(const CodecSpec& spec, DType dtype, const Shape& shape);

}  // namespace tuckfold
