// Reads a zip archive from its end, where the directory is. Every offset is checked before its use.
#include "inputs/zip.h"

#include <algorithm>

#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/inflate.h"

namespace tuckfold {
namespace {

constexpr std::uint64_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50,
                        kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr std::size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46,
                      kLocalBytes = 30;

class Archive {
 public:
  Archive(std::span<const std::byte> bytes, std::string_view path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void corrupt(std::string_view rule) const {
    fail(Errc::CorruptData, "[npz] '{}': {}; save it again with numpy.savez", path_, rule);
  }

  // A little-endian number of `count` bytes.
  std::uint64_t number(std::uint64_t at, std::size_t count) const {
    const std::span<const std::byte> from = part(at, count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
    }
    return value;
  }

  std::span<const std::byte> part(std::uint64_t at, std::uint64_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) {
      corrupt("the archive is truncated, or an offset in it is past its end");
    }
    return bytes_.subspan(at, count);
  }

  struct Directory {
    std::uint64_t at, members;
  };
  Directory directory() const {
    const std::uint64_t end = find_end();
    Directory found{.at = number(end + 16, 4), .members = number(end + 10, 2)};
    if (found.at != 0xffffffff && found.members != 0xffff) return found;
    if (end < kLocatorBytes || number(end - kLocatorBytes, 4) != kLocatorMark) return found;
    const std::uint64_t end64 = number(end - kLocatorBytes + 8, 8);
    part(end64, kEnd64Bytes);
    if (number(end64, 4) != kEnd64Mark) corrupt("its 64-bit directory is not where it should be");
    return {.at = number(end64 + 48, 8), .members = number(end64 + 32, 8)};
  }

  // Reads the directory's entry at `at` and advances `at` past it.
  ZipMember member(std::uint64_t& at) const {
    part(at, kEntryBytes);
    if (number(at, 4) != kEntryMark) corrupt("its directory is damaged");
    const std::uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
    std::uint64_t packed_size = number(at + 20, 4), size = number(at + 24, 4);
    const std::uint64_t name_size = number(at + 28, 2), extra_size = number(at + 30, 2);
    std::uint64_t local = number(at + 42, 4);
    const std::span<const std::byte> name = part(at + kEntryBytes, name_size);
    wide_fields(at + kEntryBytes + name_size, extra_size, {&size, &packed_size, &local});

    ZipMember found{.name = {reinterpret_cast<const char*>(name.data()), name.size()},
                    .deflated = method == 8,
                    .crc = static_cast<std::uint32_t>(number(at + 16, 4)),
                    .size = size};
    if (method != 0 && method != 8) {
      fail(Errc::Unsupported,
           "[npz] '{}': member {} is compressed by method {}; only stored and deflated ones are "
           "read",
           path_, tuckfold::quoted(found.name), method);
    }
    if ((flags & 1) != 0) {
      fail(Errc::Unsupported, "[npz] '{}': member {} is encrypted", path_,
           tuckfold::quoted(found.name));
    }
    part(local, kLocalBytes);
    if (number(local, 4) != kLocalMark) corrupt("a member is not where its directory says");
    found.packed =
        part(local + kLocalBytes + number(local + 26, 2) + number(local + 28, 2), packed_size);
    if (!found.deflated && size != packed_size) corrupt("a stored member has two sizes");
    at += kEntryBytes + name_size + extra_size + number(at + 32, 2);
    return found;
  }

 private:
  // A comment of up to 65535 bytes may follow the end record, so the search starts at the end.
  std::uint64_t find_end() const {
    if (bytes_.size() < kEndBytes) corrupt("it ends within its first record");
    const std::uint64_t last = bytes_.size() - kEndBytes;
    const std::uint64_t lowest = last > 0xffff ? last - 0xffff : 0;
    for (std::uint64_t at = last + 1; at-- > lowest;) {
      if (number(at, 4) == kEndMark && number(at + 20, 2) == last - at) return at;
    }
    corrupt("it has no directory at its end, so it is truncated or no archive");
  }

  // Fields that are all ones are stored in extra field 1, in this order.
  void wide_fields(std::uint64_t at, std::uint64_t size,
                   std::initializer_list<std::uint64_t*> fields) const {
    part(at, size);
    for (const std::uint64_t end = at + size; at + 4 <= end;) {
      const std::uint64_t kind = number(at, 2), length = number(at + 2, 2);
      at += 4;
      if (length > end - at) corrupt("an extra field is longer than its entry");
      if (kind == 1) {
        std::uint64_t from = at;
        for (std::uint64_t* field : fields) {
          if (*field != 0xffffffff) continue;
          if (at + length - from < 8) corrupt("a 64-bit field is missing");
          *field = number(from, 8);
          from += 8;
        }
        return;
      }
      at += length;
    }
  }

  std::span<const std::byte> bytes_;
  std::string_view path_;
};

}  // namespace

std::vector<ZipMember> list_zip(std::span<const std::byte> bytes, std::string_view path) {
  const Archive archive(bytes, path);
  auto [at, count] = archive.directory();
  if (count > bytes.size() / kEntryBytes) archive.corrupt("it announces more members than fit");
  std::vector<ZipMember> members;
  // Members that share bytes would let a small archive become any number of large arrays.
  std::size_t packed = 0;
  for (; count > 0; --count) {
    members.push_back(archive.member(at));
    packed += members.back().packed.size();
    if (packed > bytes.size()) archive.corrupt("its members overlap");
  }
  return members;
}

std::shared_ptr<const Bytes> read_member(const ZipMember& member, std::string_view path) {
  if (!member.deflated) return Bytes::of(member.packed);
  const std::string name = fmt::format("{}:{}", path, member.name);
  std::shared_ptr<const Bytes> bytes =
      inflate_all(member.packed, Deflated::Raw, member.size, "npz", name);
  if (crc32_of(bytes->span()) != member.crc) {
    fail(Errc::CorruptData,
         "[npz] '{}' is damaged: its checksum is wrong; save it again with numpy.savez", name);
  }
  return bytes;
}

}  // namespace tuckfold
