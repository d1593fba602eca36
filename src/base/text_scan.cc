#include "base/text_scan.h"

#include <algorithm>
#include <vector>

namespace tuckfold {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

}  // namespace

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = word.size() / 3 + 2;  // further away is another word
  if (word.size() > 64) return best;
  const std::string lower_word = lower(word);  // case does not count
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(lower_word, lower(candidate));
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string with_caret(std::string_view text, std::size_t at, std::size_t length) {
  // Long texts are cut to a window around the caret.
  constexpr std::size_t kBefore = 60, kWidth = 100;
  const std::size_t from = at > kBefore ? at - kBefore : 0;
  const std::string line = printable(text.substr(from, kWidth));
  const std::size_t room = line.size() > at - from ? line.size() - (at - from) : 1;
  return "  " + line + "\n  " + std::string(at - from, ' ') +
         std::string(std::clamp<std::size_t>(length, 1, room), '^');
}

std::size_t find_bad_utf8(std::string_view text) {
  const auto byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  for (std::size_t at = 0; at < text.size();) {
    const unsigned first = byte(at);
    const std::size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4) return at;
    // The second byte decides on overlong forms, surrogates and what is beyond Unicode.
    const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (more > 0 && (byte(at + 1) < low || byte(at + 1) > high)) return at;
    for (std::size_t i = 2; i <= more; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    }
    at += more + 1;
  }
  return text.npos;
}

std::string quoted(std::string_view word) {
  constexpr std::size_t kMost = 40;
  return "'" + printable(word.substr(0, kMost)) + (word.size() > kMost ? "…'" : "'");
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) return put(point);
  if (point < 0x800) {
    put(0xc0 | point >> 6);
  } else {
    if (point < 0x10000) {
      put(0xe0 | point >> 12);
    } else {
      put(0xf0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3f));
    }
    put(0x80 | (point >> 6 & 0x3f));
  }
  put(0x80 | (point & 0x3f));
}

}  // namespace tuckfold
