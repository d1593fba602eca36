// The files of a reader, mapped as they are read: a process maps some 65,000 files at most, and a
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

  // A file whose state ends at `end`, with an index of that checksum.
  void add(std::shared_ptr<const MappedFile> file, std::uint64_t end, std::uint32_t index_crc);

  // The file, by the order of add(); any number of threads may ask. Throws Io where it cannot be
  // opened again, CorruptData where it has been replaced since it was added.
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
