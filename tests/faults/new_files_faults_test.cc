// Files that get their names together where the system refuses: all are new, or all as before.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <list>

#include "base/io/new_file.h"
#include "every_place_fixture.h"

namespace tuckfold {
namespace {

using ref::read_file;

void write_three(const ref::TempFolder& folder) {
  std::list<NewFile> files;
  for (const char* name : {"a", "b", "c"}) {
    const std::string text = std::string("new ") + name;
    files.emplace_back("test", folder / name).write(std::as_bytes(std::span(text)));
  }
  finish_all(files);
}

TEST(Faults, FilesThatAreFinishedTogetherAreAllNewOrAllOld) {
  for (const std::string existing : {"", "a", "b", "c", "ab", "abc"}) {
    SCOPED_TRACE(existing);
    const ref::TempFolder folder;
    const auto begin_again = [&] {
      for (const char* name : {"a", "b", "c"}) std::filesystem::remove(folder / name);
      for (const char name : existing) std::ofstream(folder / std::string(1, name)) << "old";
    };
    begin_again();
    ref::at_every_place(
        [&] { write_three(folder); },
        [&](bool failed) {
          for (const std::string name : {"a", "b", "c"}) {
            const bool there = !failed || existing.find(name) != existing.npos;
            ASSERT_EQ(std::filesystem::exists(folder / name), there) << name;
            if (there) {
              ASSERT_EQ(read_file(folder / name), failed ? "old" : "new " + name);
            }
          }
          for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
            ASSERT_EQ(entry.path().filename().string().size(), 1u) << entry.path();
          }
          begin_again();
        });
  }
}

// A process that is killed before any call of the system leaves all files as they were or all new, but
// between two renames.
TEST(Faults, NothingButRenamesComesBetweenTheNamesOfFilesFinishedTogether) {
  const ref::TempFolder folder;
  int mixed = 0;
  for (int nth = 1;; ++nth) {
    for (const char* name : {"a", "b", "c"}) std::ofstream(folder / name) << "old";
    const pid_t child = ::fork();
    if (child == 0) {
      tuckfold_fault("any", nth, TUCKFOLD_FAULT_KILLED, 0);
      write_three(folder);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    int renewed = 0;
    for (const std::string name : {"a", "b", "c"}) {
      const std::string text = read_file(folder / name);
      ASSERT_TRUE(text == "old" || text == "new " + name) << text;
      renewed += text != "old";
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      EXPECT_EQ(renewed, 3);
      EXPECT_GT(nth, 10);
      break;
    }
    ASSERT_EQ(WEXITSTATUS(status), TUCKFOLD_FAULT_KILLED);
    mixed += renewed == 1 || renewed == 2;
  }
  EXPECT_EQ(mixed, 2);
}

// What cannot be put back is kept beside.
TEST(Faults, NothingIsLostWhereNamesCannotBeGivenBack) {
  const ref::TempFolder folder;
  for (const char* name : {"a", "b", "c"}) std::ofstream(folder / name) << "old " << name;
  tuckfold_fault("rename", 2, EIO, 1);
  EXPECT_THROW(write_three(folder), Error);
  tuckfold_fault(nullptr, 0, 0, 0);
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    found += read_file(entry.path().string()) == "old a";
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace tuckfold
