// Non-temporal copies: a memcpy for every length, place and target.
#include "base/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/target.h"
#include "base/tensor_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

TEST(Stream, CopiesWhatMemcpyCopiesOnEveryTarget) {
  const std::string before = cpu_target();
  std::vector<char> from(1024);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + 1);
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const std::size_t shift : {0, 1, 4, 31, 32, 60, 63}) {
      for (const std::size_t bytes : {0, 1, 3, 4, 32, 63, 64, 65, 127, 128, 129, 255, 500, 1000}) {
        for (const std::size_t source : {0, 1, 8}) {
          const ref::Buffer to(bytes, shift);
          stream_copy(to.data(), from.data() + source, bytes);
          stream_fence();
          ASSERT_EQ(std::memcmp(to.data(), from.data() + source, bytes), 0)
              << target << ' ' << shift << ' ' << bytes;
        }
      }
    }
  }
  use_cpu_target(before);
}

TEST(Stream, LeavesTheBytesBesideAlone) {
  const std::vector<char> from(400, 'x');
  for (std::size_t begin = 0; begin < 130; begin += 13) {
    const ref::Buffer to(600);
    stream_copy(to.data() + begin, from.data(), from.size());
    stream_fence();
    const auto touched = std::count_if(to.span().begin(), to.span().end(),
                                       [](std::byte value) { return value != ref::kUntouched; });
    EXPECT_EQ(touched, 400) << begin;
  }
}

}  // namespace
}  // namespace tuckfold
