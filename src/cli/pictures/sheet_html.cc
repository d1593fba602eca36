// The sheet as a page: pictures are inside of it as PNG, so that it can be mailed and archived.
#include <cstdint>
#include <string_view>

#include "base/fail.h"
#include "cli/pictures/sheet.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kHead = R"_(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #222; --paper: #fafafa; --line: #ccc; --dim: #666; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #ddd; --paper: #181818; --line: #444; --dim: #999; }}
}}
body {{ margin: 2rem; background: var(--paper); color: var(--ink); font: 15px/1.4 system-ui, sans-serif; }}
h1 {{ font-size: 1.2rem; }}
p {{ color: var(--dim); margin: 0.2rem 0; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.2rem 0.8rem; border-bottom: 1px solid var(--line); text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
main {{ display: flex; flex-wrap: wrap; gap: 1.2rem; }}
figure {{ margin: 0; }}
img {{ display: block; image-rendering: pixelated; }}
figcaption {{ font-size: 0.8rem; margin: 0.1rem 0 0.5rem; }}
section {{ max-width: {width}px; }}
</style>
)_";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += letter;
    }
  }
  return result;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const auto byte = i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0u;
      three = three << 8 | byte;
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool there = i + k <= bytes.size();
      text += there ? kLetters[three >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::string table_of(const std::vector<SheetFigures>& figures) {
  if (figures.empty()) return "";
  std::string text =
      "<table>\n<tr><th>codec</th><th>ratio</th><th>PSNR</th><th>max error</th></tr>\n";
  for (const SheetFigures& one : figures) {
    text +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(one.name),
                    escaped(one.ratio), escaped(one.psnr), escaped(one.max_error));
  }
  return text + "</table>\n";
}

}  // namespace

std::string Sheet::html() const {
  const Canvas& first = rows.front().tiles.front().picture;
  const Scale scale = Scale::of(first.width(), first.height());
  const std::string name = title.empty() ? "samples" : escaped(title.front());
  const std::int64_t width = (first.width() + scale.reduce - 1) / scale.reduce * scale.enlarge;
  std::string page = fmt::format(fmt::runtime(kHead), fmt::arg("title", name),
                                 fmt::arg("width", std::max<std::int64_t>(width, 160)));
  page += fmt::format("<h1>{}</h1>\n", name);
  for (std::size_t i = 1; i < title.size(); ++i) {
    page += fmt::format("<p>{}</p>\n", escaped(title[i]));
  }
  page += table_of(figures) + "<main>\n";
  for (std::size_t i = 0; i < rows.front().tiles.size(); ++i) {
    page += "<section>\n";
    for (const SheetRow& row : rows) {
      const Tile& tile = row.tiles[i];
      const Canvas small = tile.picture.reduced(scale.reduce);
      std::string caption = row.name;
      if (!caption.empty() && !tile.caption.empty()) caption += ", ";
      caption = escaped(caption + tile.caption);
      page += fmt::format(
          "<figure><img width=\"{}\" height=\"{}\" alt=\"{}\" "
          "src=\"data:image/png;base64,{}\"><figcaption>{}</figcaption></figure>\n",
          small.width() * scale.enlarge, small.height() * scale.enlarge, caption,
          base64(small.png()), caption);
    }
    page += "</section>\n";
  }
  return page + "</main>\n</html>\n";
}

}  // namespace tuckfold::cli
