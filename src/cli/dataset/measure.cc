#include "cli/dataset/measure.h"

#include <algorithm>

#include "base/fill.h"
#include "cli/dataset/dataset.h"
#include "container/compare.h"
#include "container/format.h"

namespace tuckfold::cli {

void measure_kept(const std::string& path, std::int64_t samples, const Source& source,
                  std::int64_t first, std::span<const ArrayCheck> checks, int threads,
                  std::span<WrittenArray> written) {
  if (samples == 0 || std::ranges::none_of(checks, &ArrayCheck::measure)) return;
  const FileReader reader(path);
  for (std::size_t a = 0; a < checks.size(); ++a) {
    if (!checks[a].measure) continue;
    const ArrayInfo& array = reader.arrays()[a];
    const std::int64_t batch = std::min(samples, batch_samples(array.sample_bytes(), threads));
    const std::int64_t elems = array.shape.elems();
    const auto room = static_cast<std::size_t>(batch);
    const HugeBuffer want(room * array.sample_bytes()), got(room * array.sample_bytes());
    const FillMarks fill(array.dtype, array.fill);
    const bool masked = reader.mask(a).has_value();
    std::vector<std::uint8_t> marks(masked ? room * static_cast<std::size_t>(elems) : 0);
    for (std::int64_t at = 0; at < samples; at += batch) {
      const std::int64_t count = std::min(batch, samples - at);
      read_samples(source, a, first + at, count, want.data(), threads);
      reader.read(a, at, count,
                  TensorView(got.data(), array.dtype, with_samples(count, array.shape)), threads);
      if (masked) fill.mark(want.data(), count * elems, marks.data());
      written[a].sums.add(compare_values(array.dtype, want.data(), array.dtype, got.data(),
                                         count * elems, masked ? marks.data() : nullptr));
      written[a].measured += count;
    }
  }
}

}  // namespace tuckfold::cli
