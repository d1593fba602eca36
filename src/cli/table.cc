#include "cli/table.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail.h"

namespace tuckfold::cli {

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    left_.push_back(title.starts_with('<'));
    if (left_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::print(std::string_view indent) const {
  std::vector<std::size_t> widths(left_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += left_[i] ? fmt::format("{:<{}}", row[i], widths[i])
                       : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
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
