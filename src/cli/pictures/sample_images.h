// A few samples of an array, held in memory to be shown.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cli/pictures/picture.h"
#include "cli/pictures/sheet.h"
#include "cli/quality/difference.h"

namespace tuckfold::cli {

// The position of the picture in a sample. `channel` picks one plane or one colour; without it, the
// frame is the first plane, or all three colours.
Frame frame_in(const Shape& sample, std::optional<std::int64_t> channel);

// The array of an original that belongs to one of the inputs. Throws InvalidArgument where its
// samples have another shape.
std::size_t original_of(const SourceArray& array, const Samples& inputs, const Samples& original);

struct SampleImages {
  SourceArray array;
  HugeBuffer values;
  std::vector<std::uint8_t> marks;  // not 0 where a fill value is; empty: nowhere

  SampleImages(const Samples& samples, std::size_t number,
               const std::vector<std::int64_t>& numbers);
  SampleImages copy() const;

  // Makes these its fill values, if its dtype has them, and marks them.
  void mark(std::span<const FillValue> fill);

  std::int64_t count() const noexcept { return count_; }
  const std::byte* sample(std::int64_t i) const {
    return values.data() + static_cast<std::size_t>(i) * array.sample_bytes();
  }
  const std::uint8_t* sample_marks(std::int64_t i) const {
    return marks.empty() ? nullptr : marks.data() + i * array.sample.elems();
  }
  Picture picture(std::int64_t i, const Frame& frame) const {
    return picture_of(array.dtype, sample(i), sample_marks(i), frame);
  }
  // The values shown as black and white: 0 and 255 of u8, else the least and largest of all.
  std::pair<double, double> tones(const Frame& frame) const;
  // The samples after packing them together and unpacking, as in a file, and the ratio without the
  // mask of fill values.
  std::pair<SampleImages, double> through(const CodecSpec& spec, int threads) const;

 private:
  SampleImages(SourceArray info, std::int64_t count);
  std::int64_t count_;
};

}  // namespace tuckfold::cli
