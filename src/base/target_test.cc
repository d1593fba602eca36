// Which SIMD target runs, and how it is forced.
#include "base/target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "tuckfold/error.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

// In a process of its own: what TUCKFOLD_CPU=name gives.
[[noreturn]] void report_with(const char* name) {
  setenv("TUCKFOLD_CPU", name, 1);
  int code = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second must not pass by accident
    try {
      std::fprintf(stderr, "runs on %s\n", cpu_target().c_str());
      code = 0;
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      code = exit_code(error.code());
    }
  }
  std::_Exit(code);
}

class TargetDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(TargetDeathTest, TheEnvironmentForcesEachTarget) {
  for (const std::string& name : cpu_targets()) {
    EXPECT_EXIT(report_with(name.c_str()), ::testing::ExitedWithCode(0), "runs on " + name);
  }
}

TEST_F(TargetDeathTest, AnUnknownNameFailsEveryTime) {
  EXPECT_EXIT(report_with("sse9"), ::testing::ExitedWithCode(2),
              "TUCKFOLD_CPU must be one of .*, got 'sse9'\n.*got 'sse9'");
  EXPECT_EXIT(report_with("AVX2"), ::testing::ExitedWithCode(2), "got 'AVX2'");
}

TEST_F(TargetDeathTest, AnEmptyNameIsAsNone) {
  EXPECT_EXIT(report_with(""), ::testing::ExitedWithCode(0), "runs on " + cpu_target());
}

TEST(Target, NamesAreDistinctAndEachCanBeUsed) {
  const std::string before = cpu_target();
  const std::vector<std::string> names = cpu_targets();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_NE(std::find(names.begin(), names.end(), before), names.end());
  for (const std::string& name : names) {
    use_cpu_target(name);
    EXPECT_EQ(cpu_target(), name);
  }
  use_cpu_target(before);
}

TEST(Target, ARefusedNameChangesNothing) {
  const std::string before = cpu_target();
  EXPECT_THROW(use_cpu_target("emu129"), Error);
  EXPECT_EQ(cpu_target(), before);
}

TEST(Version, IsThreeNumbers) {
  int major = 0, minor = 0, patch = 0;
  char rest = 0;
  EXPECT_EQ(std::sscanf(version().c_str(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3);
}

}  // namespace
}  // namespace tuckfold
