// Writes zip archives and gzip files for tests, byte by byte, so that any field can be false.
#pragma once

#include <zlib.h>

#include <string>
#include <vector>

namespace tuckfold {

inline std::string little(std::uint64_t value, int count) {
  std::string text;
  for (int i = 0; i < count; ++i, value >>= 8) text += static_cast<char>(value & 255);
  return text;
}

// `window` as zlib has it: -15 is bare deflate, 31 is gzip.
inline std::string deflated(const std::string& content, int window) {
  z_stream stream{};
  ::deflateInit2(&stream, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

inline std::string gzipped(const std::string& content) { return deflated(content, 31); }

struct ZipEntry {
  std::string name, content;
  int method = 0;               // 8: deflated
  bool wide = false;            // sizes and places as 64-bit fields
  bool first_place = false;     // the bytes of the first entry again
  std::uint64_t announced = 0;  // a false size, unless 0
};

inline std::string zip_bytes(const std::vector<ZipEntry>& entries, bool wide_end = false) {
  std::string archive, directory;
  for (const ZipEntry& entry : entries) {
    const std::string packed = entry.method == 8 ? deflated(entry.content, -15) : entry.content;
    const std::uint64_t size = entry.announced != 0 ? entry.announced : entry.content.size();
    const auto crc =
        ::crc32_z(0, reinterpret_cast<const Bytef*>(entry.content.data()), entry.content.size());
    const std::uint64_t local = entry.first_place ? 0 : archive.size();
    const std::string sizes = entry.wide ? little(0xffffffff, 4) + little(0xffffffff, 4)
                                         : little(packed.size(), 4) + little(size, 4);
    const std::string extra = entry.wide ? little(1, 2) + little(24, 2) + little(size, 8) +
                                               little(packed.size(), 8) + little(local, 8)
                                         : "";
    const std::string shared = little(20, 2) + little(0, 2) +
                               little(static_cast<std::uint64_t>(entry.method), 2) + little(0, 4) +
                               little(crc, 4) + sizes + little(entry.name.size(), 2);
    if (!entry.first_place) {
      for (const std::string& part :
           {std::string("PK\x03\x04"), shared, little(0, 2), entry.name, packed}) {
        archive += part;
      }
    }
    for (const std::string& part :
         {std::string("PK\x01\x02"), little(20, 2), shared, little(extra.size(), 2), little(0, 10),
          entry.wide ? little(0xffffffff, 4) : little(local, 4), entry.name, extra}) {
      directory += part;
    }
  }
  const std::uint64_t at = archive.size(), count = entries.size();
  archive += directory;
  if (wide_end) {
    const std::uint64_t end = archive.size();
    archive += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
               little(count, 8) + little(count, 8) + little(directory.size(), 8) + little(at, 8);
    archive += "PK\x06\x07" + little(0, 4) + little(end, 8) + little(1, 4);
  }
  return archive + "PK\x05\x06" + little(0, 4) + little(count, 2) +
         little(wide_end ? 0xffff : count, 2) + little(directory.size(), 4) +
         little(wide_end ? 0xffffffff : at, 4) + little(0, 2);
}

}  // namespace tuckfold
