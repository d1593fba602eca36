#include "cli/pictures/view_pick.h"

#include <algorithm>
#include <charconv>

#include "base/dtype.h"
#include "base/fail.h"
#include "cli/quality/quality.h"

namespace tuckfold::cli {
namespace {

std::vector<std::int64_t> parse_numbers(const std::string& text, std::int64_t samples) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error != std::errc{} || stop != text.data() + end) {
      invalid("[view] --samples takes numbers as in 3,17,100, got {}", text);
    }
    if (number < 0 || number >= samples) {
      invalid("[view] samples are 0..{}, got {}", samples - 1, number);
    }
    numbers.push_back(number);
    at = end + 1;
  }
  return numbers;
}

}  // namespace

std::vector<std::int64_t> WhichSamples::of(std::int64_t samples, std::int64_t most) const {
  if (samples == 0) invalid("[view] the inputs have no samples; nothing can be shown");
  if (!list.empty()) {
    if (!range.empty() || count) invalid("[view] --samples excludes --range and --count; drop one");
    return parse_numbers(list, samples);
  }
  SampleSlice among{0, samples};
  if (!range.empty()) among = parse_range("view", range, samples);
  if (among.samples == 0) invalid("[view] --range has no samples, got {}", range);
  const std::int64_t shown = std::min(count.value_or(most), among.samples);
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < shown; ++i) {
    numbers.push_back(among.at(shown == 1 ? 0 : i * (among.samples - 1) / (shown - 1)));
  }
  return numbers;
}

std::size_t array_to_show(const std::string& name, const Samples& samples) {
  const auto can_be_shown = [](const SourceArray& array) {
    return array.sample.rank() >= 2 && array.sample.elems() > 0;
  };
  if (!name.empty()) {
    const std::size_t found = samples.find("view", name);
    if (can_be_shown(samples.arrays()[found])) return found;
    invalid("[view] a picture needs two axes, samples of '{}' are {}", name,
            to_string(samples.arrays()[found].sample));
  }
  const auto found = std::ranges::find_if(samples.arrays(), can_be_shown);
  if (found == samples.arrays().end()) {
    invalid("[view] no array of '{}' has samples with two axes; nothing can be shown",
            samples.name());
  }
  return static_cast<std::size_t>(found - samples.arrays().begin());
}

std::vector<std::string> labels_of(const Samples& samples,
                                   const std::vector<std::int64_t>& numbers) {
  const auto is_label = [](const SourceArray& array) {
    return is_whole(array.dtype) && array.sample.elems() == 1;
  };
  std::optional<std::size_t> found;
  for (std::size_t a = 0; a < samples.arrays().size(); ++a) {
    const SourceArray& array = samples.arrays()[a];
    if (is_label(array) && (!found || array.name == "label")) found = a;
  }
  std::vector<std::string> labels(numbers.size());
  for (std::size_t i = 0; found && i < numbers.size(); ++i) {
    const SourceArray& array = samples.arrays()[*found];
    std::byte bytes[8];
    samples.read(*found, numbers[i], 1, bytes, 1);
    labels[i] = fmt::format(" {} {:.0f}", array.name, value_at(array.dtype, bytes, 0));
  }
  return labels;
}

}  // namespace tuckfold::cli
