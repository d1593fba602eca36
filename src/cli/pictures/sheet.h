// A contact sheet: samples side by side, and below each its results. As a page with labels and
// figures, without other files, and as a bare picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pictures/canvas.h"

namespace tuckfold::cli {

struct Tile {
  Canvas picture;
  std::string caption;  // below it: "31.20 dB"
};

// The same of every sample: originals, results of a codec, or errors.
struct SheetRow {
  std::string name;  // "dct_chop(keep=4)"; empty if it is the only row
  std::vector<Tile> tiles;
};

// A row of the page's table.
struct SheetFigures {
  std::string name, ratio, psnr, max_error;
};

struct Sheet {
  std::vector<std::string> title;  // lines above everything
  std::vector<SheetRow> rows;      // of equally many tiles, whose pictures have one size
  std::vector<SheetFigures> figures;
  std::int64_t columns = 1;  // samples beside each other; further ones go below

  Canvas draw() const;
  std::string html() const;

  // How a picture of that size is shown: pixels enlarged to squares, or squares made one.
  struct Scale {
    std::int64_t enlarge = 1, reduce = 1;
    static Scale of(std::int64_t width, std::int64_t height);
  };
};

}  // namespace tuckfold::cli
