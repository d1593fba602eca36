#include "cli/pictures/sheet.h"

#include <algorithm>

#include "base/fail.h"

namespace tuckfold::cli {
namespace {

constexpr std::int64_t kMargin = 20, kGap = 10;     // around the sheet, and between tiles
constexpr std::int64_t kSmall = 144, kLarge = 384;  // pictures are brought between these
constexpr std::int64_t kText = 2;                   // letters are enlarged so many times
constexpr std::int64_t kLine = kLineHeight * kText, kLetter = kLetterWidth * kText;
constexpr std::int64_t kLeastLetters = 32;  // to a line, however few samples there are
constexpr Rgb kPaper = {250, 250, 250};

std::int64_t shown_length(std::int64_t length, const Sheet::Scale& scale) {
  return (length + scale.reduce - 1) / scale.reduce * scale.enlarge;
}

// The positions of the sheet's parts, in pixels.
struct Grid {
  struct Row {
    std::vector<std::string> heading;
    std::int64_t top = 0, picture_top = 0;  // from where its band begins
  };
  Sheet::Scale scale;
  std::int64_t picture_height = 0, tile_width = 0, columns = 1, area_width = 0;
  std::vector<std::string> title;
  std::vector<Row> rows;
  std::int64_t title_height = 0, band_height = 0, bands = 1;

  explicit Grid(const Sheet& sheet) {
    const Canvas& first = sheet.rows.front().tiles.front().picture;
    scale = Sheet::Scale::of(first.width(), first.height());
    picture_height = shown_length(first.height(), scale);
    tile_width = shown_length(first.width(), scale);
    for (const SheetRow& row : sheet.rows) {
      for (const Tile& tile : row.tiles) {
        tile_width = std::max(tile_width, std::ssize(tile.caption) * kLetter);
      }
    }
    const auto samples = std::ssize(sheet.rows.front().tiles);
    columns = std::clamp<std::int64_t>(sheet.columns, 1, samples);
    bands = (samples + columns - 1) / columns;
    area_width = std::max(columns * (tile_width + kGap) - kGap, kLeastLetters * kLetter);
    const auto letters = static_cast<std::size_t>(area_width / kLetter);
    for (const std::string& text : sheet.title) {
      for (std::string& line : wrap(text, letters)) title.push_back(std::move(line));
    }
    title_height = title.empty() ? 0 : std::ssize(title) * kLine + kGap;
    for (const SheetRow& row : sheet.rows) {
      Row& place = rows.emplace_back(Row{.heading = wrap(row.heading(), letters)});
      const bool captions =
          std::ranges::any_of(row.tiles, [](const Tile& tile) { return !tile.caption.empty(); });
      place.top = band_height;
      place.picture_top = band_height + std::ssize(place.heading) * kLine;
      band_height = place.picture_top + picture_height + (captions ? kLine + kGap / 2 : 0) + kGap;
    }
    if (rows.size() > 1) band_height += kMargin;
  }

  std::int64_t width() const { return area_width + 2 * kMargin; }
  std::int64_t height() const {
    const std::int64_t trailing = rows.size() > 1 ? kMargin + kGap : kGap;
    return 2 * kMargin + title_height + bands * band_height - trailing;
  }
};

}  // namespace

Sheet::Scale Sheet::Scale::of(std::int64_t width, std::int64_t height) {
  const std::int64_t side = std::max(width, height);
  return {.enlarge = (std::max(side, kSmall) + side - 1) / side,
          .reduce = (side + kLarge - 1) / kLarge};
}

Canvas Sheet::draw() const {
  const Grid grid(*this);
  if (grid.height() > Canvas::kMostPixels / grid.width()) {
    invalid("[view] a sheet has at most {} pixels, got {} x {}; show fewer samples with --count",
            Canvas::kMostPixels, grid.width(), grid.height());
  }
  Canvas canvas(grid.width(), grid.height(), kPaper);
  const auto write_lines = [&](const std::vector<std::string>& lines, std::int64_t top) {
    for (const std::string& line : lines) {
      canvas.write(line, kMargin, top, kText);
      top += kLine;
    }
  };
  write_lines(grid.title, kMargin);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::int64_t i = 0; i < std::ssize(rows[r].tiles); ++i) {
      const Tile& tile = rows[r].tiles[static_cast<std::size_t>(i)];
      const std::int64_t band = kMargin + grid.title_height + i / grid.columns * grid.band_height;
      const std::int64_t left = kMargin + i % grid.columns * (grid.tile_width + kGap);
      const std::int64_t top = band + grid.rows[r].picture_top;
      if (i % grid.columns == 0) write_lines(grid.rows[r].heading, band + grid.rows[r].top);
      canvas.draw(tile.picture.reduced(grid.scale.reduce), left, top, grid.scale.enlarge);
      canvas.write(tile.caption, left, top + grid.picture_height + kGap / 2, kText);
    }
  }
  return canvas;
}

}  // namespace tuckfold::cli
