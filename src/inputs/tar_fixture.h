// Writes tar archives and small images for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "inputs/zip_fixture.h"

namespace tuckfold {

inline std::string tar_header(const std::string& name, std::uint64_t size, char kind = '0') {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  char octal[32];
  std::snprintf(octal, sizeof octal, "%011llo", static_cast<unsigned long long>(size));
  put(124, octal);
  put(148, "        ");
  header[156] = kind;
  put(257, std::string("ustar\0"
                       "00",
                       8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  std::snprintf(octal, sizeof octal, "%06o", sum);
  put(148, std::string(octal) + '\0' + ' ');
  return header;
}

inline std::string tar_member(const std::string& name, const std::string& content,
                              char kind = '0') {
  return tar_header(name, content.size(), kind) + content +
         std::string((512 - content.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

inline std::string tar_bytes(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string archive;
  for (const auto& [name, content] : members) archive += tar_member(name, content);
  return archive + tar_end();
}

inline std::string big(std::uint64_t value, int count) {
  std::string text;
  for (int i = count; i-- > 0;) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}

// `colours` as PNG has them: 0 grey, 2 RGB, 3 palette, 6 RGBA. `rows` are of full bytes, without
// filters.
inline std::string png_bytes(std::uint32_t width, std::uint32_t height, int bits, int colours,
                             const std::string& rows, const std::string& palette = {}) {
  std::string filtered;
  const std::size_t step = height == 0 ? 0 : rows.size() / height;
  for (std::uint32_t y = 0; y < height; ++y) filtered += '\0' + rows.substr(y * step, step);
  const auto chunk = [](const std::string& name, const std::string& content) {
    const std::string body = name + content;
    const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
    return big(content.size(), 4) + body + big(crc, 4);
  };
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big(width, 4) + big(height, 4) + static_cast<char>(bits) +
                           static_cast<char>(colours) + std::string(3, '\0')) +
         (palette.empty() ? "" : chunk("PLTE", palette)) + chunk("IDAT", deflated(filtered, 15)) +
         chunk("IEND", "");
}

// One strip, not compressed; `apart` has one strip for each channel.
inline std::string tiff_bytes(std::uint32_t width, std::uint32_t height, std::uint32_t channels,
                              std::uint32_t bits, std::uint32_t format, const std::string& values,
                              bool apart = false) {
  std::string entries;
  std::uint64_t count = 0;
  const auto entry = [&](std::uint64_t tag, std::uint64_t type, std::uint64_t length,
                         std::uint64_t value) {
    entries += little(tag, 2) + little(type, 2) + little(length, 4) + little(value, 4);
    ++count;
  };
  const std::uint64_t strips = apart ? channels : 1;
  const std::uint64_t bytes = values.size() / strips;
  const std::uint64_t after = 8 + values.size();  // lists of values longer than an entry holds
  const std::uint64_t bits_at = after, format_at = bits_at + 2 * channels,
                      offsets_at = format_at + 2 * channels, counts_at = offsets_at + 4 * strips,
                      directory = (counts_at + 4 * strips + 1) / 2 * 2;
  entry(256, 4, 1, width);
  entry(257, 4, 1, height);
  entry(258, 3, channels, channels > 2 ? bits_at : channels == 2 ? bits | bits << 16 : bits);
  entry(259, 3, 1, 1);
  entry(262, 3, 1, 1);
  entry(273, 4, strips, strips > 1 ? offsets_at : 8);
  entry(277, 3, 1, channels);
  entry(278, 4, 1, height);
  entry(279, 4, strips, strips > 1 ? counts_at : bytes);
  entry(284, 3, 1, apart ? 2 : 1);
  entry(339, 3, channels,
        channels > 2    ? format_at
        : channels == 2 ? format | format << 16
                        : format);
  std::string lists;
  for (std::uint32_t i = 0; i < channels; ++i) lists += little(bits, 2);
  for (std::uint32_t i = 0; i < channels; ++i) lists += little(format, 2);
  for (std::uint64_t i = 0; i < strips; ++i) lists += little(8 + i * bytes, 4);
  for (std::uint64_t i = 0; i < strips; ++i) lists += little(bytes, 4);
  lists.resize(directory - after, '\0');
  return "II*" + std::string(1, '\0') + little(directory, 4) + values + lists + little(count, 2) +
         entries + little(0, 4);
}

// 8 x 8 of grey 100, and 8 x 16 of about (200, 40, 90).
inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}
inline std::string grey_jpeg() {
  return from_hex(
      "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c"
      "1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffc000"
      "0b080008000801011100ffc40014000100000000000000000000000000000005ffc4001410010000000000000000"
      "0000000000000000ffda0008010100003f000dffd9");
}
inline std::string colour_jpeg() {
  return from_hex(
      "ffd8ffe000104a46494600010100000100010000ffdb004300030202030202030303030403030405080505040405"
      "0a"
      "070706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb0043"
      "01"
      "03040405040509050509140d0b0d1414141414141414141414141414141414141414141414141414141414141414"
      "14"
      "1414141414141414141414141414141414ffc00011080008001003011100021101031101ffc40015000101000000"
      "00"
      "000000000000000000000007ffc40014100100000000000000000000000000000000ffc400160101010100000000"
      "00"
      "0000000000000000000308ffc40014110100000000000000000000000000000000ffda000c03010002110311003f"
      "00"
      "9224d9603fffd9");
}

}  // namespace tuckfold
