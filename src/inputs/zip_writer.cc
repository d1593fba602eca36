#include "inputs/zip_writer.h"

#include "base/fail.h"
#include "inputs/inflate.h"

namespace tuckfold {
namespace {

std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 255);
  return text;
}

// Version 4.5 for 64-bit fields; flags: checksum and sizes follow the data, the name is UTF-8;
// stored; 1980-01-01, since the same samples give the same bytes.
std::string shared_fields() {
  constexpr std::uint64_t kVersion = 45, kFlags = 0x0808, kStored = 0, kDate = 0x21;
  return little(kVersion, 2) + little(kFlags, 2) + little(kStored, 2) + little(0, 2) +
         little(kDate, 2);
}
std::string wide() { return little(0xffffffff, 4); }  // see the extra field

}  // namespace

void ZipWriter::put(const std::string& bytes) {
  write_(std::as_bytes(std::span(bytes)));
  at_ += bytes.size();
}

void ZipWriter::begin(const std::string& name, std::uint64_t size) {
  end_member();
  if (name.size() > 0xffff) invalid("[npz] a name has at most 65535 bytes, got {}", name.size());
  members_.push_back({.name = name, .size = size, .at = at_});
  const std::string extra = little(1, 2) + little(16, 2) + little(size, 8) + little(size, 8);
  put("PK\x03\x04" + shared_fields() + little(0, 4) + wide() + wide() + little(name.size(), 2) +
      little(extra.size(), 2) + name + extra);
}

void ZipWriter::add(std::span<const std::byte> bytes) {
  Member& member = members_.back();
  member.crc = crc32_of(bytes, member.crc);
  member.written += bytes.size();
  write_(bytes);
  at_ += bytes.size();
}

void ZipWriter::end_member() {
  if (members_.empty()) return;
  const Member& member = members_.back();
  if (member.written != member.size) {
    fail(Errc::Internal, "[npz] '{}' has {} bytes, {} were announced", member.name, member.written,
         member.size);
  }
  put("PK\x07\x08" + little(member.crc, 4) + little(member.size, 8) + little(member.size, 8));
}

void ZipWriter::finish() {
  end_member();
  const std::uint64_t directory = at_;
  for (const Member& member : members_) {
    const std::string extra = little(1, 2) + little(24, 2) + little(member.size, 8) +
                              little(member.size, 8) + little(member.at, 8);
    put("PK\x01\x02" + little(45, 2) + shared_fields() + little(member.crc, 4) + wide() + wide() +
        little(member.name.size(), 2) + little(extra.size(), 2) + little(0, 10) + wide() +
        member.name + extra);
  }
  const std::uint64_t end = at_, count = members_.size();
  put("PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
      little(count, 8) + little(count, 8) + little(end - directory, 8) + little(directory, 8));
  put("PK\x06\x07" + little(0, 4) + little(end, 8) + little(1, 4));
  put("PK\x05\x06" + little(0, 4) + little(0xffff, 2) + little(0xffff, 2) + wide() + wide() +
      little(0, 2));
}

}  // namespace tuckfold
