#include "cli/pictures/sample_images.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/fill.h"
#include "container/format.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

// H x W x C of few channels that are no colours: C is small beside H and W.
bool channels_last(const Shape& sample) {
  if (sample.rank() != 3 || sample[0] == 3 || sample[2] == 3) return false;
  const std::int64_t channels = sample[2];
  return channels > 1 && channels <= 16 && sample[0] >= 4 * channels && sample[1] >= 4 * channels;
}

}  // namespace

Frame frame_in(const Shape& sample, std::optional<std::int64_t> channel) {
  Frame frame{};
  if (channels_last(sample)) {
    frame = {.height = sample[0],
             .width = sample[1],
             .channels = 1,
             .row_step = sample[1] * sample[2],
             .col_step = sample[2],
             .channel_step = 1,
             .count = sample[2],
             .offset = 0};
  } else {
    frame = frame_of(sample, 0);
    frame.channel_step = frame.channels == 1 ? frame.height * frame.width : frame.channel_step;
  }
  const std::int64_t channels = frame.count * frame.channels;
  if (!channel) return frame;
  if (*channel < 0 || *channel >= channels) {
    invalid("[view] --channel must be 0..{} for samples of {}, got {}", channels - 1,
            to_string(sample), *channel);
  }
  frame.offset = *channel / frame.channels * frame.height * frame.width * frame.channels +
                 *channel % frame.channels * frame.channel_step;
  if (frame.channels == 1) frame.offset = *channel * frame.channel_step;
  frame.channels = 1;
  return frame;
}

std::size_t original_of(const SourceArray& array, const Samples& inputs, const Samples& original) {
  if (std::ranges::count(original.arrays(), array.name, &SourceArray::name) == 0) {
    invalid("[view] '{}' has no array '{}'; --rename gives that of the inputs another name",
            original.name(), array.name);
  }
  const std::size_t found = original.find("view", array.name);
  const SourceArray& other = original.arrays()[found];
  if (other.sample != array.sample) {
    invalid("[view] samples of '{}' are {} in '{}' and {} in '{}'; show them apart", array.name,
            to_string(array.sample), inputs.name(), to_string(other.sample), original.name());
  }
  return found;
}

SampleImages::SampleImages(SourceArray info, std::int64_t count)
    : array(std::move(info)),
      values(static_cast<std::size_t>(count) * array.sample_bytes()),
      count_(count) {}

SampleImages::SampleImages(const Samples& samples, std::size_t number,
                           const std::vector<std::int64_t>& numbers)
    : array(samples.arrays()[number]), count_(std::ssize(numbers)) {
  if (numbers.size() > kMostBytes / array.sample_bytes()) {
    invalid("[view] at most {} of samples are shown, got {} of {} each; lower --count",
            size_text(kMostBytes), numbers.size(), size_text(array.sample_bytes()));
  }
  values = HugeBuffer(numbers.size() * array.sample_bytes());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    samples.read(number, numbers[i], 1, values.data() + i * array.sample_bytes(), 1);
  }
}

SampleImages SampleImages::copy() const {
  SampleImages other(array, count_);
  std::memcpy(other.values.data(), values.data(), values.size());
  other.marks = marks;
  return other;
}

void SampleImages::mark(std::span<const FillValue> fill) {
  array.fill.clear();
  for (const FillValue& value : fill) {
    if (const auto own = fill_value_in(array.dtype, value.value)) array.fill.push_back(*own);
  }
  const std::int64_t elems = count_ * array.sample.elems();
  marks.assign(static_cast<std::size_t>(elems), 0);
  const FillMarks found(array.dtype, array.fill);
  if (found.empty() || found.mark(values.data(), elems, marks.data()) == 0) marks.clear();
}

std::pair<double, double> SampleImages::tones(const Frame& frame) const {
  if (array.dtype == DType::U8) return {0, 255};
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::int64_t i = 0; i < count_; ++i) {
    const auto range = range_of(picture(i, frame));
    if (!range) continue;
    low = std::min(low, range->first);
    high = std::max(high, range->second);
  }
  if (low > high) return {0, 1};
  return {low, high > low ? high : low + 1};
}

std::pair<SampleImages, double> SampleImages::through(const CodecSpec& spec, int threads) const {
  const Shape shape = with_samples(count_, array.sample);
  const RunOptions options{.threads = threads};
  const HugeBuffer packed(layout(spec, array.dtype, shape).max_bytes);
  SampleImages result = copy();
  const TensorView view(result.values.data(), array.dtype, shape);
  const bool has_mask = !marks.empty() && !is_exact(spec);
  if (has_mask) fill_holes(array.dtype, shape, marks.data(), result.values.data());
  const std::size_t bytes =
      pack(spec, ConstTensorView(result.values.data(), array.dtype, shape), packed.span(), options);
  std::memset(result.values.data(), 0xff, result.values.size());  // so that a gap is seen
  unpack(spec, packed.span().first(bytes), view, options);
  if (has_mask) {
    const FillMarks fill(array.dtype, array.fill);
    fill.step_aside(view);
    fill.restore(marks.data(), view);
  }
  return {std::move(result), static_cast<double>(values.size()) / static_cast<double>(bytes)};
}

}  // namespace tuckfold::cli
