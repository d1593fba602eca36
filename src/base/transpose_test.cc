// Matrices of every word and size against their definition, on every target.
#include "base/transpose.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/target.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

template <class Word>
void expect_transposed(Along order, std::int64_t rows, std::int64_t cols, std::int64_t past) {
  const std::int64_t from_step = cols + past, to_step = rows + 2 * past;
  constexpr auto kUntouched = static_cast<Word>(0xa5);
  std::vector<Word> from(static_cast<std::size_t>(rows * from_step));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<Word>(i * 7 + 1);
  std::vector<Word> to(static_cast<std::size_t>(cols * to_step), kUntouched);
  transpose_words(order, sizeof(Word), from.data(), from_step, rows, cols, to.data(), to_step);
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = 0; r < to_step; ++r) {
      const Word wanted = r < rows ? from[static_cast<std::size_t>(r * from_step + c)] : kUntouched;
      ASSERT_EQ(to[static_cast<std::size_t>(c * to_step + r)], wanted)
          << rows << " x " << cols << " words of " << sizeof(Word) << " at " << r << ", " << c;
    }
  }
}

TEST(Transpose, GivesEveryMatrixAndWritesNothingBeside) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33}) {
      for (const std::int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 35, 64}) {
        for (const std::int64_t past : {0, 3}) {
          for (const Along order : {Along::From, Along::To}) {
            expect_transposed<std::uint8_t>(order, rows, cols, past);
            expect_transposed<std::uint16_t>(order, rows, cols, past);
            expect_transposed<std::uint32_t>(order, rows, cols, past);
            expect_transposed<std::uint64_t>(order, rows, cols, past);
          }
        }
      }
    }
  }
  use_cpu_target(before);
}

}  // namespace
}  // namespace tuckfold
