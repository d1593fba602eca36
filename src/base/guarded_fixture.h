// Memory for tests between inaccessible pages: reading or writing outside of it ends the program.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace tuckfold::ref {

// `bytes` between two inaccessible pages, at the end of the first or the beginning of the second.
class Guarded {
 public:
  Guarded(std::size_t bytes, bool at_end) : room_((bytes + kPage - 1) / kPage * kPage) {
    map_ = static_cast<std::byte*>(
        mmap(nullptr, room_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(map_ + kPage, room_, PROT_READ | PROT_WRITE);
    data_ = map_ + kPage + (at_end ? room_ - bytes : 0);
  }
  ~Guarded() { munmap(map_, room_ + 2 * kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t room_;
  std::byte *map_, *data_;
};

}  // namespace tuckfold::ref
