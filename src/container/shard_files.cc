#include "container/shard_files.h"

#include "base/fail.h"
#include "container/format.h"

namespace tuckfold {

void ShardFiles::add(std::shared_ptr<const MappedFile> file, std::uint64_t end,
                     std::uint32_t index_crc) {
  const auto number = static_cast<std::uint32_t>(shards_.size());
  shards_.push_back(
      {.path = file->path(), .end = end, .index_crc = index_crc, .file = nullptr, .use = {}});
  keep(shards_.back(), number, std::move(file));
}

void ShardFiles::keep(Shard& shard, std::uint32_t number,
                      std::shared_ptr<const MappedFile> file) const {
  if (used_.size() >= kMostMapped) {
    shards_[used_.back()].file.reset();  // who reads it now holds it
    used_.pop_back();
  }
  shard.file = std::move(file);
  used_.push_front(number);
  shard.use = used_.begin();
}

std::shared_ptr<const MappedFile> ShardFiles::get(std::uint32_t number) const {
  // None is let go, and so there is no lock that a forked child could find held.
  if (shards_.size() <= kMostMapped) return shards_[number].file;
  const std::lock_guard lock(mutex_);
  Shard& shard = shards_[number];
  if (shard.file) {
    used_.splice(used_.begin(), used_, shard.use);
    return shard.file;
  }
  auto file = std::make_shared<const MappedFile>(shard.path, "read");
  if (index_crc(file->bytes(), shard.end) != shard.index_crc) {
    fail(Errc::CorruptData, "[read] '{}' has been replaced since it was opened; open it again",
         shard.path);
  }
  keep(shard, number, file);
  return file;
}

}  // namespace tuckfold
