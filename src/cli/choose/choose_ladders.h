// The specs that `choose` tries: one ladder for each way to use a codec.
#pragma once

#include <vector>

#include "cli/dataset/array.h"
#include "tuckfold/codec.h"

namespace tuckfold::cli {

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
Facts facts_of(const Array& array);

// Specs of one codec or chain, from the fewest bytes and the largest error to the reverse.
using Ladder = std::vector<CodecSpec>;

// In the order of the registry; of equal candidates the earlier is chosen.
std::vector<Ladder> ladders_for(const Facts& facts, const Target& target);

// Whether an exact codec refuses some tensors of the shape: it, or a stage of a chain, packs all of
// them to one size, and that is too small to tell them apart.
bool refuses_some(const CodecSpec& spec, DType dtype, const Shape& shape);

}  // namespace tuckfold::cli
