// Writes a zip archive sequentially, so that it may go to a pipe: members are stored, their sizes
// are known before, and all fields have 64 bits.
//
//   ZipWriter zip([&](std::span<const std::byte> bytes) { file.write(bytes); });
//   zip.begin("image.npy", size);
//   zip.add(bytes);             // until there are `size`
//   zip.finish();
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tuckfold {

class ZipWriter {
 public:
  using Write = std::function<void(std::span<const std::byte>)>;
  explicit ZipWriter(Write write) : write_(std::move(write)) {}

  // Names are UTF-8. The member before must have all of its bytes.
  void begin(const std::string& name, std::uint64_t size);
  void add(std::span<const std::byte> bytes);
  void finish();

 private:
  struct Member {
    std::string name;
    std::uint64_t size = 0, at = 0, written = 0;
    std::uint32_t crc = 0;
  };
  void put(const std::string& bytes);
  void end_member();

  Write write_;
  std::vector<Member> members_;
  std::uint64_t at_ = 0;
};

}  // namespace tuckfold
