// Walks a tar archive: headers of 512 bytes, each followed by its member in blocks of 512. Archives
// that follow each other are one.
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/fail.h"
#include "base/text_scan.h"
#include "inputs/tar.h"

namespace tuckfold {
namespace {

constexpr std::size_t kBlock = 512;

class Archive {
 public:
  Archive(std::span<const std::byte> bytes, std::string_view path) : rest_(bytes), path_(path) {}

  [[noreturn]] void corrupt(std::string_view rule) const {
    fail(Errc::CorruptData, "[tar] '{}': {}; copy it again", path_, rule);
  }

  std::vector<TarMember> list() {
    std::vector<TarMember> members;
    std::string long_name;   // of the next member
    std::int64_t size = -1;  // of the next member, where its header does not say it
    while (!at_end()) {
      const std::string_view header = text(take(kBlock));
      if (!checksum_fits(header)) corrupt("a header's checksum is wrong");
      const char kind = header[156];
      const bool is_extra = kind == 'L' || kind == 'x' || kind == 'g';
      const std::uint64_t length = !is_extra && size >= 0 ? static_cast<std::uint64_t>(size)
                                                          : number(header.substr(124, 12));
      const std::span<const std::byte> body = take(length);
      if (length % kBlock != 0) take(kBlock - length % kBlock);
      if (kind == 'L') {
        long_name = text(body).substr(0, text(body).find('\0'));
      } else if (kind == 'x') {
        read_pax(text(body), long_name, size);
      } else if (kind == '0' || kind == '\0') {
        members.push_back({long_name.empty() ? short_name(header) : long_name, body});
      } else if (kind != '5' && kind != 'g') {
        fail(Errc::Unsupported,
             "[tar] '{}': member {} is neither file nor folder; archive the files themselves",
             path_, tuckfold::quoted(short_name(header)));
      }
      if (!is_extra) {
        long_name.clear();
        size = -1;
      }
    }
    return members;
  }

  static bool checksum_fits(std::string_view header) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
    }
    const std::optional<std::uint64_t> stored = octal(header.substr(148, 8));
    return stored && *stored == sum;
  }

 private:
  static std::string_view text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // A block of zeros ends an archive. One that just stops was cut. Another archive may follow the
  // zeros, as `cat a.tar b.tar` has it; its members are read, too.
  bool at_end() {
    if (rest_.size() < kBlock) corrupt("it is truncated: no block of zeros ends it");
    if (!is_zero(rest_.first(kBlock))) return false;
    while (rest_.size() >= kBlock && is_zero(rest_.first(kBlock))) take(kBlock);
    if (rest_.size() >= kBlock) return false;
    if (!is_zero(rest_)) corrupt("bytes that are no archive follow its end");
    return true;
  }

  static bool is_zero(std::span<const std::byte> bytes) {
    return text(bytes).find_first_not_of('\0') == std::string_view::npos;
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > rest_.size()) corrupt("it ends within a member");
    const std::span<const std::byte> taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  static std::optional<std::uint64_t> octal(std::string_view field) {
    const std::size_t begin = field.find_first_not_of(' ');
    if (begin == field.npos) return std::nullopt;
    std::uint64_t value = 0;
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data() + begin, end, value, 8);
    if (error != std::errc{} || (stop != end && *stop != ' ' && *stop != '\0')) return std::nullopt;
    return value;
  }

  // Octal, or big-endian if the first bit is set.
  std::uint64_t number(std::string_view field) const {
    if ((field.front() & 0x80) == 0) {
      const std::optional<std::uint64_t> value = octal(field);
      if (!value) corrupt("a member's size is no number");
      return *value;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < field.size(); ++i) {
      if (value >> 56 != 0) corrupt("a member's size is no number");
      value = value << 8 | static_cast<std::uint64_t>(field[i] & (i == 0 ? 0x7f : 0xff));
    }
    return value;
  }

  static std::string short_name(std::string_view header) {
    const auto field = [&](std::size_t at, std::size_t size) {
      const std::string_view whole = header.substr(at, size);
      return std::string(whole.substr(0, whole.find('\0')));
    };
    const std::string prefix =
        header.substr(257, 6) == std::string_view("ustar\0", 6) ? field(345, 155) : std::string();
    return prefix.empty() ? field(0, 100) : prefix + "/" + field(0, 100);
  }

  // Records "LENGTH KEY=VALUE\n", where the length counts all of the record.
  void read_pax(std::string_view records, std::string& name, std::int64_t& size) const {
    while (!records.empty()) {
      std::size_t length = 0;
      const char* end = records.data() + records.size();
      const auto [space, error] = std::from_chars(records.data(), end, length);
      const auto digits = static_cast<std::size_t>(space - records.data());
      if (error != std::errc{} || length > records.size() || length < digits + 2 || *space != ' ') {
        corrupt("an extended header is damaged");
      }
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      if (record.starts_with("path=")) name = record.substr(5);
      if (record.starts_with("size=")) {
        const char* stop = record.data() + record.size();
        const auto [after, wrong] = std::from_chars(record.data() + 5, stop, size);
        if (wrong != std::errc{} || after != stop || size < 0) {
          corrupt("a member's size is no number");
        }
      }
    }
  }

  std::span<const std::byte> rest_;
  std::string_view path_;
};

}  // namespace

std::vector<TarMember> list_tar(std::span<const std::byte> archive, std::string_view path) {
  return Archive(archive, path).list();
}

bool is_tar(std::span<const std::byte> archive) {
  return archive.size() >= kBlock && archive[0] != std::byte{0} &&
         Archive::checksum_fits({reinterpret_cast<const char*>(archive.data()), kBlock});
}

}  // namespace tuckfold
