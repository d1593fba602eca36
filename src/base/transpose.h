// Copies a matrix of words to its transpose, square tiles at a time in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tuckfold {

// Whose rows to go along: those that lie in memory rather than in cache.
enum class Along : unsigned char { From, To };

// Row r, column c of `from` becomes row c, column r of `to`. Rows are so many words apart, and
// `rows` and `cols` are those of `from`. A word has 1, 2, 4 or 8 bytes. The two must not overlap.
void transpose_words(Along order, std::size_t word_bytes, const void* from, std::int64_t from_step,
                     std::int64_t rows, std::int64_t cols, void* to, std::int64_t to_step) noexcept;

}  // namespace tuckfold
