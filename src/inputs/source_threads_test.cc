// A source is read by several threads at once.
#include <gtest/gtest.h>

#include <thread>

#include "inputs/source_fixture.h"

namespace tuckfold {
namespace {

// count numbers from `first` on, two to a sample.
std::string numbers(std::int32_t first, std::int32_t count) {
  std::string data;
  for (std::int32_t i = first; i < first + count; ++i) data += bytes_of<std::int32_t>({i});
  return npy_bytes("<i4", "(" + std::to_string(count / 2) + ", 2)", data);
}

TEST(SourceThreads, ReadAtOnce) {
  const TempFolder folder;
  const auto source = open_paths(
      {folder.write("a.npy", numbers(0, 4000)), folder.write("b.npy", numbers(4000, 4000))});
  std::vector<std::int32_t> values(8000);
  std::vector<std::thread> threads;
  for (std::int64_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      source->read(0, part * 1000, 1000,
                   reinterpret_cast<std::byte*>(&values[static_cast<std::size_t>(part) * 2000]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], static_cast<std::int32_t>(i));
}

}  // namespace
}  // namespace tuckfold
