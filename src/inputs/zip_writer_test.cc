// Archives that are written front to back are read by the reader of others.
#include "inputs/zip_writer.h"

#include <gtest/gtest.h>

#include "inputs/inflate.h"
#include "inputs/zip.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(ZipWriter, WhatIsWrittenIsRead) {
  std::string archive;
  ZipWriter zip([&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  zip.begin("a/caf\xc3\xa9.npy", 5);
  zip.add(bytes_of("he"));
  zip.add(bytes_of("llo"));
  zip.begin("none.npy", 0);
  zip.begin("c", 1);
  zip.add(bytes_of("c"));
  zip.finish();
  const std::vector<ZipMember> members = list_zip(bytes_of(archive), "a.npz");
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].name, "a/caf\xc3\xa9.npy");
  EXPECT_TRUE(std::ranges::equal(members[0].packed, bytes_of("hello")));
  EXPECT_EQ(members[0].crc, crc32_of(bytes_of("hello")));
  EXPECT_EQ(members[1].size, 0u);
  EXPECT_TRUE(std::ranges::equal(members[2].packed, bytes_of("c")));
}

TEST(ZipWriter, AMemberHasTheBytesThatWereAnnounced) {
  ZipWriter zip([](std::span<const std::byte>) {});
  zip.begin("a", 5);
  zip.add(bytes_of("he"));
  EXPECT_THROW(zip.finish(), Error);
  EXPECT_THROW(zip.begin("b", 1), Error);
}

TEST(ZipWriter, AnArchiveWithoutMembersIsOne) {
  std::string archive;
  ZipWriter zip([&](std::span<const std::byte> bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  zip.finish();
  EXPECT_TRUE(list_zip(bytes_of(archive), "a.npz").empty());
}

}  // namespace
}  // namespace tuckfold
