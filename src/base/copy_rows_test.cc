// Rows of every length against a plain loop.
#include "base/copy_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace tuckfold {
namespace {

constexpr std::byte kUntouched{0xa5};

TEST(CopyRows, CopiesEveryLengthAndNothingBeside) {
  for (const std::int64_t rows : {0, 1, 2, 5}) {
    for (std::int64_t bytes = 1; bytes <= 300; ++bytes) {
      const std::int64_t from_step = bytes + rows % 3, to_step = bytes + 2 * (rows % 2);
      // Both end where the last row does, for AddressSanitizer.
      const auto span = [&](std::int64_t step) {
        return static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * step + bytes);
      };
      std::vector<std::byte> from(span(from_step)), to(span(to_step), kUntouched), wanted = to;
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 % 128);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < bytes; ++i) {
          wanted[static_cast<std::size_t>(row * to_step + i)] =
              from[static_cast<std::size_t>(row * from_step + i)];
        }
      }
      copy_rows(from.data(), from_step, to.data(), to_step, rows, bytes);
      ASSERT_EQ(to, wanted) << rows << " rows of " << bytes;
    }
  }
}

TEST(CopyRows, CopiesLongRows) {
  for (const std::int64_t bytes : {8191, 8192, 8193, 20000}) {
    std::vector<std::byte> from(static_cast<std::size_t>(3 * bytes)), to(from.size(), kUntouched);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 127);
    copy_rows(from.data(), bytes, to.data(), bytes, 3, bytes);
    ASSERT_EQ(to, from);
  }
}

}  // namespace
}  // namespace tuckfold
