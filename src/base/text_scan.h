// Helpers for small textual grammars: a caret under the offending word, and the nearest valid one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tuckfold {

// The candidate that needs the fewest edits to become `word`, if that is few enough to be a slip of
// the hand; else empty.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates);

// `text` on a line of its own, and a line of carets under [at, at + length). Bytes that are not
// printable ASCII are shown as '?', so that carets are below the right characters.
std::string with_caret(std::string_view text, std::size_t at, std::size_t length);

// Appends a Unicode code point as UTF-8.
void append_utf8(std::string& out, std::uint32_t point);

// Where the text stops being UTF-8: the first byte of what is none, or npos. Overlong forms and
// surrogates are none.
std::size_t find_bad_utf8(std::string_view text);

// `word` between quotes, shortened and made printable, for messages.
std::string quoted(std::string_view word);

}  // namespace tuckfold
