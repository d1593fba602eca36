#include "cli/terminal/table.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "cli/terminal/help_format.h"

namespace tuckfold::cli {
namespace {

// Letters of UTF-8: each has one byte that is no continuation.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xc0) != 0x80;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    left_.push_back(title.starts_with('<'));
    if (left_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    // Names come from files; control characters could overwrite other lines.
    for (char& letter : cell) {
      if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7f') letter = '?';
    }
  }
  rows_.push_back(std::move(cells));
}

std::string Table::print(std::string_view indent) const {
  std::vector<std::size_t> widths(left_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::size_t wide = indent.size() + 2 * (widths.size() - 1);
  for (const std::size_t width : widths) wide += width;
  const std::size_t fit = columns_of(STDOUT_FILENO);
  if (fit > 0 && wide > fit && rows_.size() > 1) return print_lists(indent);
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      const std::string space(widths[i] - columns(row[i]), ' ');
      line += left_[i] ? row[i] + space : space + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string Table::print_lists(std::string_view indent) const {
  std::size_t width = 0;
  for (const std::string& title : rows_.front()) width = std::max(width, columns(title));
  std::string text;
  for (std::size_t i = 1; i < rows_.size(); ++i) {
    if (i > 1) text += '\n';
    for (std::size_t c = 0; c < rows_[i].size(); ++c) {
      const std::string& title = rows_.front()[c];
      const std::string space(width - columns(title), ' ');
      text += fmt::format("{}{}{}  {}\n", indent, title, space, rows_[i][c]);
    }
  }
  return text;
}

void print_out(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    fail(Errc::Io, "[print] cannot write to standard output: {}", std::strerror(errno));
  }
}

}  // namespace tuckfold::cli
