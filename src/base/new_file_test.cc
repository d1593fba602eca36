// Files that get their names only when they are complete, whatever fails before.
#include "base/io/new_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/io/bytes.h"
#include "base/io/file.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

namespace fs = std::filesystem;

class NewFileTest : public testing::Test {
 protected:
  NewFileTest() {
    std::string name = (fs::temp_directory_path() / "tuckfold_new_file_XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~NewFileTest() override { fs::remove_all(folder); }

  std::string at(const char* name) const { return folder / name; }
  void put(const char* name, const std::string& text) const { std::ofstream(at(name)) << text; }
  std::string text(const char* name) const {
    std::ifstream file(at(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  fs::path folder;
};

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_F(NewFileTest, HasItsNameWhenItIsWhole) {
  put("a", "old");
  {
    NewFile file("test", at("a"));
    file.write(bytes_of("new"));
    EXPECT_EQ(text("a"), "old");
  }
  EXPECT_EQ(text("a"), "old");
  EXPECT_EQ(files(), 1u);
  NewFile file("test", at("a"));
  file.write(bytes_of("ne"));
  file.write(bytes_of("w"));
  EXPECT_EQ(file.size(), 3u);
  file.finish();
  EXPECT_EQ(text("a"), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(NewFileTest, TwoWritersDoNotMix) {
  NewFile one("test", at("a")), two("test", at("a"));
  one.write(bytes_of("first"));
  two.write(bytes_of("2"));
  one.write(bytes_of(" whole"));
  two.finish();
  EXPECT_EQ(text("a"), "2");
  one.finish();
  EXPECT_EQ(text("a"), "first whole");
  EXPECT_EQ(files(), 1u);
}

TEST_F(NewFileTest, DoesNotReplaceWhatAppearedMeanwhile) {
  {
    NewFile file("test", at("a"), NewFile::Replace::No);
    file.write(bytes_of("new"));
    put("a", "other");
    EXPECT_THROW(file.finish(), Error);
  }
  EXPECT_EQ(text("a"), "other");
  EXPECT_EQ(files(), 1u);
}

TEST_F(NewFileTest, FollowsLinks) {
  fs::create_directory(folder / "there");
  fs::create_symlink("there/real", folder / "link");
  fs::create_symlink("link", folder / "again");
  for (const std::string now : {"1", "2"}) {  // first to nothing, then to a file
    NewFile file("test", at("again"));
    file.write(bytes_of(now));
    file.finish();
    EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "again"));
    EXPECT_EQ(text("there/real"), now);
  }
  fs::create_symlink("round", folder / "round");
  EXPECT_THROW(NewFile("test", at("round")), Error);
  EXPECT_THROW(NewFile("test", at("there")), Error);
}

TEST_F(NewFileTest, WritesThroughPipesAndDevices) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = text("pipe"); });
  {
    NewFile file("test", at("pipe"));
    EXPECT_TRUE(file.is_stream());
    file.write(bytes_of("through"));
    file.finish();
  }
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  fs::create_symlink("/dev/null", folder / "null");
  NewFile file("test", at("null"));
  file.write(bytes_of("gone"));
  file.finish();
  EXPECT_TRUE(fs::is_character_file(folder / "null"));
}

TEST_F(NewFileTest, WritesToOpenFilesFromWhereTheyAre) {
  put("a", "before ");
  const int open = ::open(at("a").c_str(), O_WRONLY | O_APPEND);
  for (const char* folder_of_files : {"/dev/fd/", "/proc/self/fd/"}) {
    NewFile file("test", folder_of_files + std::to_string(open));
    file.write(bytes_of("x"));
    file.finish();
  }
  ::close(open);
  EXPECT_EQ(text("a"), "before xx");
}

TEST_F(NewFileTest, KeepsPermissions) {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat info {};
  NewFile("test", at("a")).finish();
  ASSERT_EQ(::stat(at("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
  ASSERT_EQ(::chmod(at("a").c_str(), 0600), 0);
  NewFile("test", at("a")).finish();
  ASSERT_EQ(::stat(at("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(NewFileTest, NamesOfAnyLengthWork) {
  const std::string name(250, 'n');
  NewFile file("test", at(name.c_str()));
  file.finish();
  EXPECT_EQ(files(), 1u);
}

TEST_F(NewFileTest, OneWriterAtATimeHoldsAnOutFile) {
  std::optional<OutFile> file(std::in_place, at("a"), OutFile::Open::Truncate);
  EXPECT_THROW(OutFile(at("a"), OutFile::Open::Keep), Error);
  EXPECT_THROW(OutFile(at("a"), OutFile::Open::Truncate), Error);
  file->write(bytes_of("x"));
  EXPECT_TRUE(file->is_there());
  file->rename_to(at("b"), false);
  EXPECT_TRUE(file->is_there());
  put("b2", "");
  fs::rename(folder / "b2", folder / "b");
  EXPECT_FALSE(file->is_there());
  file.reset();
  fs::create_symlink("b", folder / "link");
  EXPECT_THROW(OutFile(at("link"), OutFile::Open::Truncate), Error);
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_THROW(OutFile(at("pipe"), OutFile::Open::Truncate), Error);
}

// The last one: what was remembered stays, and the system gives numbers of removed files again.
TEST_F(NewFileTest, InputsAreNotWrittenOver) {
  put("a", "input");
  fs::create_hard_link(folder / "a", folder / "hard");
  fs::create_symlink("a", folder / "soft");
  Bytes::remember_mapped(true);
  Bytes::map(at("a"), "test");
  Bytes::remember_mapped(false);
  for (const char* name : {"a", "hard", "soft"}) EXPECT_THROW(NewFile("test", at(name)), Error);
  EXPECT_EQ(text("a"), "input");
  EXPECT_THROW(OutFile(at("hard"), OutFile::Open::Truncate), Error);
  EXPECT_THROW(OutFile(at("hard"), OutFile::Open::Keep), Error);
  put("b", "");
  Bytes::map(at("b"), "test");
  EXPECT_NO_THROW(NewFile("test", at("b")));
}

}  // namespace
}  // namespace tuckfold
