// Matrices of every word and size against their definition, on every target.
#include "base/transpose.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/stream.h"
#include "base/target.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

// The matrix in memory ends where its allocation does, for AddressSanitizer; the other has slack.
template <class Word>
class Words {
 public:
  Words(std::int64_t count, bool in_memory)
      : count_(count),
        words_(static_cast<std::size_t>(count) +
                   (in_memory ? 0 : static_cast<std::size_t>(kTransposeSlack) / sizeof(Word)),
               kUntouched) {}
  Word* data() { return words_.data(); }
  Word& operator[](std::int64_t i) { return words_[static_cast<std::size_t>(i)]; }
  std::int64_t count() const { return count_; }

  static constexpr auto kUntouched = static_cast<Word>(0xa5);

 private:
  std::int64_t count_;
  std::vector<Word> words_;
};

struct Case {
  Along memory;
  std::int64_t rows, cols, planes, past;  // past: words after each row
};

template <class Word>
void expect_transposed(const Case& is) {
  const bool along_from = is.memory == Along::From;
  const std::int64_t from_step = is.cols + is.past, to_step = is.rows + 2 * is.past;
  const std::int64_t from_plane = is.rows * from_step + is.past;
  const std::int64_t to_plane = is.cols * to_step + is.past;
  // Without what follows the last row.
  Words<Word> from((is.planes - 1) * from_plane + (is.rows - 1) * from_step + is.cols, along_from);
  for (std::int64_t i = 0; i < from.count(); ++i) from[i] = static_cast<Word>(i * 7 + 1);
  Words<Word> to((is.planes - 1) * to_plane + (is.cols - 1) * to_step + is.rows, !along_from);
  transpose_words({.memory = is.memory,
                   .word_bytes = sizeof(Word),
                   .from = from.data(),
                   .from_step = from_step,
                   .from_plane = from_plane,
                   .rows = is.rows,
                   .cols = is.cols,
                   .planes = is.planes,
                   .to = to.data(),
                   .to_step = to_step,
                   .to_plane = to_plane,
                   .stream = is.rows % 3 == 0});
  stream_fence();
  for (std::int64_t i = 0; i < to.count(); ++i) {
    const std::int64_t p = i / to_plane, c = i % to_plane / to_step, r = i % to_plane % to_step;
    const bool ours = c < is.cols && r < is.rows;
    if (!ours && along_from) continue;  // in cache
    const Word wanted = ours ? from[p * from_plane + r * from_step + c] : Words<Word>::kUntouched;
    ASSERT_EQ(to[i], wanted) << is.rows << " x " << is.cols << " words of " << sizeof(Word)
                             << " at plane " << p << ", " << r << ", " << c << " past " << is.past;
  }
}

TEST(Transpose, GivesEveryMatrixAndWritesNothingBesideInMemory) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 14, 15, 16, 17, 33, 49, 64, 70, 130}) {
      for (const std::int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 14, 15, 16, 17, 35, 64, 67}) {
        for (const std::int64_t past : {0, 3}) {
          for (const Along memory : {Along::From, Along::To}) {
            for (const std::int64_t planes : {1, 3}) {
              const Case is{memory, rows, cols, planes, past};
              expect_transposed<std::uint8_t>(is);
              expect_transposed<std::uint16_t>(is);
              expect_transposed<std::uint32_t>(is);
              expect_transposed<std::uint64_t>(is);
              if (::testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
  use_cpu_target(before);
}

// Rows a page apart, which compete for the cache, and lines of the output that are whole.
TEST(Transpose, RowsAPageApart) {
  for (const Along memory : {Along::From, Along::To}) {
    expect_transposed<std::uint8_t>({memory, 70, 100, 1, 4096 - 100});
    expect_transposed<std::uint16_t>({memory, 70, 100, 1, 2048 - 100});
    expect_transposed<std::uint32_t>({memory, 70, 100, 2, 1024 - 100});
    expect_transposed<std::uint64_t>({memory, 70, 100, 1, 512 - 100});
  }
  EXPECT_TRUE(rows_compete(4096, 16));
  EXPECT_FALSE(rows_compete(4096, 4));
  EXPECT_FALSE(rows_compete(4096 + 64, 64));
  EXPECT_FALSE(rows_compete(4096 + 4, 64));
}

}  // namespace
}  // namespace tuckfold
