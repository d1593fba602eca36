// The files of a reader, mapped when they are read: a process can map about 65,000 files, and a
// dataset may have more shards.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/io/file.h"

namespace tuckfold {

class ShardFiles {
 public:
  static constexpr std::size_t kMostMapped = 1024;

  // Adds a file whose state ends at `end`, with an index of that checksum.
  void add(std::shared_ptr<const MappedFile> file, std::uint64_t end, std::uint32_t index_crc);

  // The file, by the order of add(); safe to call from several threads. Throws Io if it cannot be
  // opened again, CorruptData if it was replaced after it was added.
  std::shared_ptr<const MappedFile> get(std::uint32_t number) const;

 private:
  struct Shard {
    std::string path;
    std::uint64_t end;
    std::uint32_t index_crc;
    std::shared_ptr<const MappedFile> file;  // null: not mapped
    std::list<std::uint32_t>::iterator use;  // where it is mapped
  };
  void keep(Shard& shard, std::uint32_t number, std::shared_ptr<const MappedFile> file) const;

  mutable std::mutex mutex_;
  mutable std::vector<Shard> shards_;
  mutable std::list<std::uint32_t> used_;  // those that are mapped, the latest first
};

}  // namespace tuckfold
