#include "cli/terminal/help_format.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

namespace tuckfold::cli {
namespace {

constexpr std::size_t kDescriptionAt = 30;  // CLI11's column of descriptions
constexpr std::size_t kNarrow = 48, kNarrowIndent = 6;

// Appends words to the last line; further lines are indented.
void fill(std::string& text, std::size_t used, std::string_view words, std::size_t indent,
          std::size_t columns) {
  std::istringstream stream{std::string(words)};
  bool first = true;
  for (std::string word; stream >> word; first = false) {
    if (!first && used + 1 + word.size() > columns) {
      text += '\n' + std::string(indent, ' ');
      used = indent;
      first = true;
    }
    text += (first ? "" : " ") + word;
    used += (first ? 0 : 1) + word.size();
  }
  text += '\n';
}

bool is_prose(std::string_view line) {
  return !line.empty() && line[0] != ' ' && !line.starts_with("Usage:") && !line.ends_with(':');
}

}  // namespace

std::size_t columns_of(int file) {
  winsize size{};
  return ::ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::size_t terminal_columns() {
  std::size_t columns = columns_of(STDOUT_FILENO);
  const char* given = std::getenv("COLUMNS");
  if (columns == 0 && given != nullptr) {
    const std::string_view text(given);
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  return columns == 0 ? 100 : std::clamp<std::size_t>(columns, 40, 120);
}

std::string fit_help(std::string_view help, std::size_t columns) {
  std::string text, prose;
  bool examples = false;
  const auto end_prose = [&] {
    if (!prose.empty()) fill(text, 0, prose, 0, columns);
    prose.clear();
  };
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = std::min(help.find('\n', at), help.size());
    const std::string_view line = help.substr(at, end - at);
    at = end + 1;
    if (is_prose(line)) {
      prose += std::string(line) + ' ';
      continue;
    }
    end_prose();
    if (!line.empty() && line[0] != ' ') examples = line.starts_with("Example");
    const bool described = !examples && line.size() > kDescriptionAt && line[0] == ' ' &&
                           line.substr(kDescriptionAt - 2, 2) == "  ";
    if (described && columns < kNarrow) {
      const std::string_view option = line.substr(0, kDescriptionAt);
      const std::size_t letters = option.find_last_not_of(' ') + 1;  // 0: on the line before
      if (letters > 0) text += std::string(option.substr(0, letters)) + '\n';
      text += std::string(kNarrowIndent, ' ');
      fill(text, kNarrowIndent, line.substr(kDescriptionAt), kNarrowIndent, columns);
    } else if (described) {
      text += line.substr(0, kDescriptionAt);
      fill(text, kDescriptionAt, line.substr(kDescriptionAt), kDescriptionAt, columns);
    } else {
      text += std::string(line) + '\n';
    }
  }
  end_prose();
  return text;
}

}  // namespace tuckfold::cli
