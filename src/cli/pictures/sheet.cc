#include "cli/pictures/sheet.h"

#include <algorithm>

#include "base/fail.h"

namespace tuckfold::cli {
namespace {

constexpr std::int64_t kMargin = 20, kGap = 10;     // around the sheet, and between pictures
constexpr std::int64_t kSmall = 144, kLarge = 384;  // pictures are brought between these
constexpr Rgb kPaper = {250, 250, 250};

std::int64_t shown_length(std::int64_t length, const Sheet::Scale& scale) {
  return (length + scale.reduce - 1) / scale.reduce * scale.enlarge;
}

}  // namespace

Sheet::Scale Sheet::Scale::of(std::int64_t width, std::int64_t height) {
  const std::int64_t side = std::max(width, height);
  return {.enlarge = (std::max(side, kSmall) + side - 1) / side,
          .reduce = (side + kLarge - 1) / kLarge};
}

Canvas Sheet::draw() const {
  const Canvas& first = rows.front().tiles.front().picture;
  const Scale scale = Scale::of(first.width(), first.height());
  const auto samples = std::ssize(rows.front().tiles);
  const std::int64_t across = std::clamp<std::int64_t>(columns, 1, samples);
  const std::int64_t bands = (samples + across - 1) / across;
  const std::int64_t step_x = shown_length(first.width(), scale) + kGap;
  const std::int64_t step_y = shown_length(first.height(), scale) + kGap;
  // A band has the rows of `across` samples; a wider gap keeps it apart from the next.
  const std::int64_t apart = rows.size() > 1 ? kMargin : 0;
  const std::int64_t band_height = std::ssize(rows) * step_y + apart;
  const std::int64_t width = across * step_x - kGap + 2 * kMargin;
  const std::int64_t height = bands * band_height - kGap - apart + 2 * kMargin;
  if (height > Canvas::kMostPixels / width) {
    invalid("[view] a sheet has at most {} pixels, got {} x {}; show fewer samples with --count",
            Canvas::kMostPixels, width, height);
  }
  Canvas canvas(width, height, kPaper);
  for (std::int64_t r = 0; r < std::ssize(rows); ++r) {
    for (std::int64_t i = 0; i < samples; ++i) {
      const Tile& tile = rows[static_cast<std::size_t>(r)].tiles[static_cast<std::size_t>(i)];
      canvas.draw(tile.picture.reduced(scale.reduce), kMargin + i % across * step_x,
                  kMargin + i / across * band_height + r * step_y, scale.enlarge);
    }
  }
  return canvas;
}

}  // namespace tuckfold::cli
