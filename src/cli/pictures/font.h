// Letters of 5 by 7 pixels, as many as labels under pictures need. A row's bits go from left (16)
// to right (1).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tuckfold::cli {

inline constexpr int kGlyphWidth = 5, kGlyphHeight = 7;

struct Glyph {
  char letter;
  std::array<std::uint8_t, kGlyphHeight> rows;
};

// clang-format off
inline constexpr std::array kGlyphs = {
    Glyph{' ', {0, 0, 0, 0, 0, 0, 0}},
    Glyph{'0', {14, 17, 19, 21, 25, 17, 14}}, Glyph{'1', {4, 12, 4, 4, 4, 4, 14}},
    Glyph{'2', {14, 17, 1, 2, 4, 8, 31}},     Glyph{'3', {31, 2, 4, 2, 1, 17, 14}},
    Glyph{'4', {2, 6, 10, 18, 31, 2, 2}},     Glyph{'5', {31, 16, 30, 1, 1, 17, 14}},
    Glyph{'6', {6, 8, 16, 30, 17, 17, 14}},   Glyph{'7', {31, 1, 2, 4, 8, 8, 8}},
    Glyph{'8', {14, 17, 17, 14, 17, 17, 14}}, Glyph{'9', {14, 17, 17, 15, 1, 2, 12}},
    Glyph{'a', {0, 0, 14, 1, 15, 17, 15}},    Glyph{'b', {16, 16, 22, 25, 17, 17, 30}},
    Glyph{'c', {0, 0, 14, 16, 16, 17, 14}},   Glyph{'d', {1, 1, 13, 19, 17, 17, 15}},
    Glyph{'e', {0, 0, 14, 17, 31, 16, 14}},   Glyph{'f', {6, 9, 8, 28, 8, 8, 8}},
    Glyph{'g', {0, 15, 17, 17, 15, 1, 14}},   Glyph{'h', {16, 16, 22, 25, 17, 17, 17}},
    Glyph{'i', {4, 0, 12, 4, 4, 4, 14}},      Glyph{'j', {2, 0, 6, 2, 2, 18, 12}},
    Glyph{'k', {16, 16, 18, 20, 24, 20, 18}}, Glyph{'l', {12, 4, 4, 4, 4, 4, 14}},
    Glyph{'m', {0, 0, 26, 21, 21, 17, 17}},   Glyph{'n', {0, 0, 22, 25, 17, 17, 17}},
    Glyph{'o', {0, 0, 14, 17, 17, 17, 14}},   Glyph{'p', {0, 0, 30, 17, 30, 16, 16}},
    Glyph{'q', {0, 0, 13, 19, 15, 1, 1}},     Glyph{'r', {0, 0, 22, 25, 16, 16, 16}},
    Glyph{'s', {0, 0, 14, 16, 14, 1, 30}},    Glyph{'t', {8, 8, 28, 8, 8, 9, 6}},
    Glyph{'u', {0, 0, 17, 17, 17, 19, 13}},   Glyph{'v', {0, 0, 17, 17, 17, 10, 4}},
    Glyph{'w', {0, 0, 17, 17, 21, 21, 10}},   Glyph{'x', {0, 0, 17, 10, 4, 10, 17}},
    Glyph{'y', {0, 0, 17, 17, 15, 1, 14}},    Glyph{'z', {0, 0, 31, 2, 4, 8, 31}},
    Glyph{'B', {30, 17, 17, 30, 17, 17, 30}}, Glyph{'(', {2, 4, 8, 8, 8, 4, 2}},
    Glyph{')', {8, 4, 2, 2, 2, 4, 8}},        Glyph{'=', {0, 0, 31, 0, 31, 0, 0}},
    Glyph{',', {0, 0, 0, 0, 12, 4, 8}},       Glyph{'.', {0, 0, 0, 0, 0, 12, 12}},
    Glyph{'_', {0, 0, 0, 0, 0, 0, 31}},       Glyph{'-', {0, 0, 0, 31, 0, 0, 0}},
    Glyph{'+', {0, 4, 4, 31, 4, 4, 0}},       Glyph{'|', {4, 4, 4, 4, 4, 4, 4}},
    Glyph{'A', {14, 17, 17, 31, 17, 17, 17}}, Glyph{'C', {14, 17, 16, 16, 16, 17, 14}},
    Glyph{'D', {30, 17, 17, 17, 17, 17, 30}}, Glyph{'E', {31, 16, 16, 30, 16, 16, 31}},
    Glyph{'F', {31, 16, 16, 30, 16, 16, 16}}, Glyph{'G', {14, 17, 16, 23, 17, 17, 15}},
    Glyph{'H', {17, 17, 17, 31, 17, 17, 17}}, Glyph{'I', {14, 4, 4, 4, 4, 4, 14}},
    Glyph{'J', {7, 2, 2, 2, 2, 18, 12}},      Glyph{'K', {17, 18, 20, 24, 20, 18, 17}},
    Glyph{'L', {16, 16, 16, 16, 16, 16, 31}}, Glyph{'M', {17, 27, 21, 21, 17, 17, 17}},
    Glyph{'N', {17, 17, 25, 21, 19, 17, 17}}, Glyph{'O', {14, 17, 17, 17, 17, 17, 14}},
    Glyph{'P', {30, 17, 17, 30, 16, 16, 16}}, Glyph{'Q', {14, 17, 17, 17, 21, 18, 13}},
    Glyph{'R', {30, 17, 17, 30, 20, 18, 17}}, Glyph{'S', {15, 16, 16, 14, 1, 1, 30}},
    Glyph{'T', {31, 4, 4, 4, 4, 4, 4}},       Glyph{'U', {17, 17, 17, 17, 17, 17, 14}},
    Glyph{'V', {17, 17, 17, 17, 17, 10, 4}},  Glyph{'W', {17, 17, 17, 21, 21, 21, 10}},
    Glyph{'X', {17, 17, 10, 4, 10, 17, 17}},  Glyph{'Y', {17, 17, 17, 10, 4, 4, 4}},
    Glyph{'Z', {31, 1, 2, 4, 8, 16, 31}},     Glyph{':', {0, 12, 12, 0, 12, 12, 0}},
    Glyph{'/', {0, 1, 2, 4, 8, 16, 0}},       Glyph{'#', {10, 10, 31, 10, 31, 10, 10}},
    Glyph{'%', {24, 25, 2, 4, 8, 19, 3}},     Glyph{'\'', {12, 4, 8, 0, 0, 0, 0}},
    Glyph{'[', {14, 8, 8, 8, 8, 8, 14}},      Glyph{']', {14, 2, 2, 2, 2, 2, 14}},
};
// clang-format on

// A letter that is not there is shown as a box.
constexpr Glyph glyph_of(char letter) {
  const auto found = std::find_if(kGlyphs.begin(), kGlyphs.end(),
                                  [&](const Glyph& glyph) { return glyph.letter == letter; });
  return found != kGlyphs.end() ? *found : Glyph{letter, {31, 17, 17, 17, 17, 17, 31}};
}

}  // namespace tuckfold::cli
