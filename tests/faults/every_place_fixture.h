// Every call of the system that can fail, failing once at each place where it is made.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "container/dataset_fixture.h"
#include "faults.h"

namespace tuckfold::ref {

struct Fault {
  const char* call;
  int error;
  bool forever;
};
inline constexpr Fault kFaults[] = {
    {"open", EACCES, false},   {"open", EMFILE, true},  {"pwrite", ENOSPC, true},
    {"pwrite", ENOSPC, false}, {"pwrite", EIO, false},  {"ftruncate", EIO, false},
    {"fsync", EIO, false},     {"fsync", ENOSPC, true}, {"rename", EACCES, false},
    {"fstat", EIO, false},     {"mmap", ENOMEM, false}, {"flock", EIO, false},
};

// Runs `work` with the call failing at its first, second … place until there are no more; after
// each run `check` receives whether it threw.
inline void at_every_place(auto&& work, auto&& check) {
  int failures = 0;
  for (const Fault& fault : kFaults) {
    for (int nth = 1;; ++nth) {
      SCOPED_TRACE(std::string(fault.call) + " " + std::to_string(nth));
      tuckfold_fault(fault.call, nth, fault.error, fault.forever ? 1 : 0);
      const Errc code = code_thrown(work);
      const bool reached = tuckfold_fault_calls() >= nth;
      tuckfold_fault(nullptr, 0, 0, 0);
      ASSERT_EQ(code, reached ? Errc::Io : Errc::Internal);  // Internal: nothing was thrown
      check(reached);
      if (testing::Test::HasFatalFailure() || !reached) break;
      ++failures;
    }
  }
  EXPECT_GT(failures, 10);
}

}  // namespace tuckfold::ref
