// Packs samples as chunk records: other values in place of fill values, a mask of these, and what
// was packed compared with what was given. FileWriter and Rewrite write what it makes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fill.h"
#include "container/format.h"
#include "container/frame.h"

namespace tuckfold {

// Memory that is kept from chunk to chunk, and never cleared.
class ReusedBuffer {
 public:
  std::span<std::byte> of(std::size_t bytes) {
    if (bytes > capacity_) {
      data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity_ = bytes;
    }
    return {data_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t capacity_ = 0;
};

// What a thread packs in: room for samples, as given, as packed and as unpacked, for their marks
// and for the codec.
struct PackBuffers {
  ReusedBuffer samples, dense, filled, unpacked, marks, workspace;
};

// A record without its head, with room for padding after it.
struct PackedRecord {
  ReusedBuffer buffer;
  std::span<std::byte> bytes;
};

// A chunk on its way to the file.
struct PackedChunk {
  PackedRecord values, mask;  // mask.bytes is empty where the array has none
  WrittenArray found;
};

class ChunkPacker {
 public:
  // Arrays as a file has them, masks included. There are as many checks as other arrays, or none.
  // A chunk's seed follows from the number of its first sample, counted from `first` on.
  ChunkPacker(std::span<const ArrayInfo> arrays, std::span<const ArrayCheck> checks,
              std::uint64_t seed, std::int64_t first = 0);

  // `view` has samples of an array, of which the first has that number in the file.
  struct Samples {
    std::uint32_t array;
    std::uint64_t number;
    ConstTensorView view;
  };
  void pack(const Samples& samples, PackBuffers& room, PackedChunk& out, int threads) const;
  // The same with the values stored as they are.
  void store(const Samples& samples, PackBuffers& room, PackedChunk& out, int threads) const;
  // The mask and figures alone, of values that stay as they are packed, in a frame of so many bytes.
  void keep(const Samples& samples, std::size_t frame_bytes, PackBuffers& room,
            PackedChunk& out) const;
  // Whether keep() looks at the values.
  bool looks_at(std::size_t array) const {
    return masks_[array] || checks_[array].measure || checks_[array].max_error;
  }

  std::optional<std::size_t> mask_of(std::size_t array) const { return masks_[array]; }

 private:
  struct Marked;

  std::size_t write(const Samples& samples, const FramePlan& plan, const ConstTensorView& view,
                    PackBuffers& room, PackedRecord& out, int threads) const;
  Marked mark(const Samples& samples, PackBuffers& room) const;
  void write_mask(const Samples& samples, const Marked& marked, PackBuffers& room,
                  PackedChunk& out) const;
  void check(const Samples& samples, const Marked& marked, PackBuffers& room, PackedChunk& out,
             int threads) const;
  FramePlan raw_plan(const Samples& samples) const;

  std::vector<ArrayInfo> arrays_;
  std::vector<ArrayCheck> checks_;
  std::vector<FramePlan> plans_;  // of each array's whole chunks
  std::vector<bool> exact_;
  std::vector<FillMarks> fill_;
  std::vector<std::optional<std::size_t>> masks_;
  std::uint64_t seed_;
};

}  // namespace tuckfold
