// Matrices of words, transposed through vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tuckfold {

// Which of the two lies in memory rather than in cache.
enum class Along : unsigned char { From, To };

// `planes` matrices of rows x cols words: row r, column c of `from` becomes row c, column r of
// `to`. Steps and distances between planes count words of 1, 2, 4 or 8 bytes. The two must not
// overlap.
struct Transposition {
  Along memory;
  std::size_t word_bytes;
  const void* from;
  std::int64_t from_step, from_plane;
  std::int64_t rows, cols, planes;
  void* to;
  std::int64_t to_step, to_plane;
  bool stream = false;  // whole cache lines of `to` by non-temporal stores; see stream_fence()
};

// What lies in cache has kTransposeSlack bytes past its end, which are read or written.
inline constexpr std::int64_t kTransposeSlack = 64;

void transpose_words(const Transposition& job) noexcept;

// Whether so many rows, so many bytes apart, compete for few places of a first cache.
bool rows_compete(std::int64_t step_bytes, std::int64_t rows) noexcept;

}  // namespace tuckfold
