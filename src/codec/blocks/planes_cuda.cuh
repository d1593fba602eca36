// Blocks of 8 x 8 of f32, f16 and bf16 tensors that WholeBlocks does not take: sides of any length,
// channels last, transposed views, slices. The memory layout of such a tensor, and the assignment of
// its blocks to threads.
//
//   if (const auto in = PlaneBlocks::of(tensor, blocks)) {
//     const BlockDeal deal = BlockDeal::of(*in, kThreads);
//     launch(kernel, {deal.ctas(), kThreads, staged_bytes(*in, deal)}, stream, *in, deal);
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "base/cuda/divide.cuh"
#include "base/cuda/view.cuh"
#include "codec/blocks/block_rows.h"

namespace tuckfold::cuda {

// How a thread loads and stores a block.
enum class Walk : unsigned char {
  Rows,     // its rows are eight values at multiples of 16 bytes
  Columns,  // so are its columns
  Staged,   // the tensor is contiguous; rows go through shared memory
  Apart,    // value by value
};

// A block of a tensor. Rows and columns past `rows` and `cols` repeat the last ones.
struct BlockSpot {
  std::int64_t offset;  // of its first value, in elements
  std::uint32_t block;  // in the order of packed bytes
  int rows, cols;       // that exist, 1 … 8
  bool exists;          // if not, the thread takes part in barriers alone
};

struct PlaneBlocks {
  static constexpr std::int64_t kMaxStep = 1 << 27;    // of rows and columns, in elements
  static constexpr std::int64_t kMaxStagedCols = 128;  // in blocks; CTAs have as many threads

  void* data;
  DType dtype;
  Walk walk;
  int align;  // what addresses of rows are multiples of, in bytes, at most 16; where Staged
  int pad;    // bytes after each row of blocks in shared memory, 0 or 16; where Staged
  std::int64_t elems;
  std::int64_t ahead = 0;  // how far ahead a CTA prefetches rows, in bytes; where Staged
  std::uint32_t count, rows, cols, block_rows, block_cols;
  std::int32_t row_step, col_step;
  // The axes before the plane's two, merged where strides allow it; innermost first.
  std::uint32_t lengths[3];
  std::int64_t steps[3];
  Divider by_block_rows, by_block_cols, by_lengths[2];
  Divider by_sixteens;  // of a row of blocks, where they are padded

  // Nothing where strides, dtype or size do not suit these kernels.
  template <class Pointer>
  static std::optional<PlaneBlocks> of(const BasicTensorView<Pointer>& tensor, const Blocks& b);

  __device__ BlockSpot spot(std::uint32_t block, bool exists) const {
    const std::uint32_t block_row = by_block_cols.quotient(block);
    const std::uint32_t plane = by_block_rows.quotient(block_row);
    const std::uint32_t row = 8 * (block_row - plane * block_rows);
    const std::uint32_t col = 8 * (block - block_row * block_cols);
    const std::uint32_t middle = by_lengths[0].quotient(plane);
    const std::uint32_t outer = by_lengths[1].quotient(middle);
    const std::int64_t offset = (plane - middle * lengths[0]) * steps[0] +
                                (middle - outer * lengths[1]) * steps[1] + outer * steps[2] +
                                static_cast<std::int64_t>(row) * row_step +
                                static_cast<std::int64_t>(col) * col_step;
    return {.offset = offset,
            .block = block,
            .rows = static_cast<int>(min(8u, rows - row)),
            .cols = static_cast<int>(min(8u, cols - col)),
            .exists = exists};
  }
  // The first value of a row of blocks, in a contiguous tensor.
  __device__ std::int64_t block_row_begin(std::uint32_t block_row) const {
    const std::uint32_t plane = by_block_rows.quotient(block_row);
    const std::uint32_t row = 8 * (block_row - plane * block_rows);
    return (static_cast<std::int64_t>(plane) * rows + row) * cols;
  }
};

// How packed blocks are numbered: (outer index * lane_length + lane) * run_length + place. Values of
// neighbouring lanes are neighbours in memory. If those of blocks in their packed order are, there is one
// lane.
struct BlockOrder {
  std::uint32_t lane_length, run_length, outer;

  static BlockOrder of(const PlaneBlocks& b);
};

// Which thread of a CTA takes which block: a CTA takes `lanes` x `run` of them, neighbouring threads
// neighbouring lanes.
struct BlockDeal : BlockOrder {
  std::uint32_t lanes, lane_shift, run;  // of a CTA; lanes is a power of 2
  std::uint32_t lane_chunks, run_chunks;
  Divider by_lane_chunks, by_run_chunks, by_run;

  // `lanes`: how many a CTA has at least, where there are as many. `threads`: kMaxStagedCols at least.
  static BlockDeal of(const PlaneBlocks& b, int threads, std::uint32_t lanes = kWarp);
  // Sets what follows from lanes and run.
  void divide();
  std::int64_t ctas() const { return std::int64_t{outer} * lane_chunks * run_chunks; }

  // The blocks of a CTA that exist.
  struct Share {
    std::uint32_t first;
    std::uint32_t lanes, run;
  };
  __device__ Share share(std::uint32_t cta) const {
    const std::uint32_t above = by_lane_chunks.quotient(cta);
    const std::uint32_t far = by_run_chunks.quotient(above);
    const std::uint32_t lane = (cta - above * lane_chunks) * lanes;
    const std::uint32_t place = (above - far * run_chunks) * run;
    return {.first = (far * lane_length + lane) * run_length + place,
            .lanes = min(lanes, lane_length - lane),
            .run = min(run, run_length - place)};
  }
  __device__ std::uint32_t block(const Share& share, std::uint32_t lane,
                                 std::uint32_t place) const {
    return share.first + lane * run_length + place;
  }
  // Values of blocks that change hands in shared memory are `slot` apart: the block of a lane and a
  // place. The distance of lanes is odd, so that neither they nor places conflict in a bank.
  TUCKFOLD_HOST_DEVICE std::uint32_t slot(std::uint32_t lane, std::uint32_t place) const {
    return lane * (run | 1) + place;
  }
  std::uint32_t slots() const { return slot(lanes, 0); }

  // A thread's block if neighbouring threads have neighbours in the packed order instead.
  struct Packed {
    std::uint32_t block, slot;
    std::uint32_t lane;
    bool exists;
  };
  __device__ Packed in_packed_order(const Share& share, std::uint32_t thread) const {
    const std::uint32_t lane = by_run.quotient(thread), place = thread - lane * run;
    const std::uint32_t near = min(lane, share.lanes - 1);
    return {.block = block(share, near, min(place, share.run - 1)),
            .slot = slot(lane, place),
            .lane = near,
            .exists = lane < share.lanes && place < share.run};
  }
  __device__ std::uint32_t own_slot(const Share& share, std::uint32_t thread) const {
    return slot(min(thread & (lanes - 1), share.lanes - 1),
                min(thread >> lane_shift, share.run - 1));
  }
  __device__ BlockSpot spot(const PlaneBlocks& b, const Share& share, std::uint32_t thread) const {
    const std::uint32_t lane = thread & (lanes - 1), place = thread >> lane_shift;
    return b.spot(block(share, min(lane, share.lanes - 1), min(place, share.run - 1)),
                  lane < share.lanes && place < share.run);
  }
};

// Shared memory in which a CTA's rows are staged. Past the last row a whole row of a block is read.
inline std::size_t staged_bytes(const PlaneBlocks& b, std::uint32_t blocks) {
  if (b.walk != Walk::Staged) return 0;
  const std::size_t rows = blocks / b.block_cols, values = rows * 8 * b.cols;
  const std::size_t pads = rows * static_cast<std::size_t>(b.pad);
  return (values * size_bytes(b.dtype) + pads + 16 + 8 * sizeof(float) + 127) / 128 * 128;
}

// ---- on the host --------------------------------------------------------------------------------

namespace detail {

struct Axis {
  std::int64_t length, step;
};

// Axes [from, to) as one, if all their elements are equally far apart.
template <class Pointer>
std::optional<Axis> merged(const BasicTensorView<Pointer>& tensor, std::size_t from,
                           std::size_t to) {
  Axis axis{1, 0};
  for (std::size_t i = to; i-- > from;) {
    if (tensor.shape[i] == 1) continue;
    if (axis.length == 1) {
      axis = {tensor.shape[i], tensor.strides[i]};
    } else if (tensor.strides[i] == axis.step * axis.length) {
      axis.length *= tensor.shape[i];
    } else {
      return std::nullopt;
    }
  }
  return axis;
}

}  // namespace detail

template <class Pointer>
std::optional<PlaneBlocks> PlaneBlocks::of(const BasicTensorView<Pointer>& tensor,
                                           const Blocks& b) {
  const bool type =
      tensor.dtype == DType::F32 || tensor.dtype == DType::F16 || tensor.dtype == DType::BF16;
  const std::int64_t blocks = b.all_block_rows() * b.block_cols;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (!type || b.block != 8 || blocks == 0 || blocks >= kMost) return std::nullopt;

  std::size_t row_axes = b.leading;  // the first axis of columns
  for (std::int64_t rows = 1; rows < b.rows; ++row_axes) rows *= tensor.shape[row_axes];
  const auto rows = detail::merged(tensor, b.leading, row_axes);
  const auto cols = detail::merged(tensor, row_axes, tensor.shape.rank());
  if (!rows || !cols || std::abs(rows->step) >= kMaxStep || std::abs(cols->step) >= kMaxStep) {
    return std::nullopt;
  }
  PlaneBlocks p{.data = const_cast<void*>(static_cast<const void*>(tensor.data)),
                .dtype = tensor.dtype,
                .walk = Walk::Apart,
                .align = 16,
                .pad = 0,
                .elems = tensor.shape.elems(),
                .count = static_cast<std::uint32_t>(blocks),
                .rows = static_cast<std::uint32_t>(b.rows),
                .cols = static_cast<std::uint32_t>(b.cols),
                .block_rows = static_cast<std::uint32_t>(b.block_rows),
                .block_cols = static_cast<std::uint32_t>(b.block_cols),
                .row_step = static_cast<std::int32_t>(rows->step),
                .col_step = static_cast<std::int32_t>(cols->step),
                .lengths = {1, 1, 1},
                .steps = {0, 0, 0},
                .by_block_rows = Divider(static_cast<std::uint32_t>(b.block_rows)),
                .by_block_cols = Divider(static_cast<std::uint32_t>(b.block_cols))};
  int axes = 0;
  for (std::size_t to = b.leading; to > 0;) {
    std::size_t from = to - 1;
    while (from > 0 && detail::merged(tensor, from - 1, to)) --from;
    const auto axis = detail::merged(tensor, from, to);
    to = from;
    if (axis->length == 1) continue;
    if (axes == 3) return std::nullopt;
    p.lengths[axes] = static_cast<std::uint32_t>(axis->length);
    p.steps[axes++] = axis->step;
  }
  for (int i = 0; i < 2; ++i) p.by_lengths[i] = Divider(p.lengths[i]);

  const auto size = static_cast<std::int64_t>(size_bytes(tensor.dtype));
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data));
  const auto all_multiples = [&](std::int64_t step) {
    bool multiples = address % 16 == 0 && step * size % 16 == 0;
    for (const std::int64_t s : p.steps) multiples = multiples && s * size % 16 == 0;
    return multiples;
  };
  const std::int64_t plane = b.rows * b.cols;
  if (p.col_step == 1 && b.cols % 8 == 0 && all_multiples(p.row_step)) {
    p.walk = Walk::Rows;
  } else if (p.row_step == 1 && b.rows % 8 == 0 && all_multiples(p.col_step)) {
    p.walk = Walk::Columns;
  } else if (p.col_step == 1 && p.row_step == b.cols && b.block_cols <= kMaxStagedCols &&
             address % size == 0 && (axes == 0 || (axes == 1 && p.steps[0] == plane))) {
    p.walk = Walk::Staged;
    while ((address | b.cols * size) % p.align != 0) p.align /= 2;
    // Blocks begin at multiples of 8 words then, so that a warp's values would be in four banks.
    const bool in_four_banks = size == 4 && b.cols % 2 != 0 && b.rows % 8 == 0;
    if (in_four_banks && address % 16 == 0) {
      p.pad = 16;
      p.by_sixteens = Divider(static_cast<std::uint32_t>(8 * b.cols * size / 16));
    }
  }
  return p;
}

inline BlockOrder BlockOrder::of(const PlaneBlocks& b) {
  BlockOrder order{.lane_length = 1, .run_length = b.count, .outer = 1};
  const std::int64_t nearest = std::min(std::abs(b.row_step), std::abs(b.col_step));
  int axis = -1;  // of the lanes, among those before the plane
  if (b.walk == Walk::Apart) {
    for (int i = 0; i < 3; ++i) {
      const bool nearer = b.lengths[i] > 1 && std::abs(b.steps[i]) < nearest;
      if (nearer && (axis < 0 || std::abs(b.steps[i]) < std::abs(b.steps[axis]))) axis = i;
    }
  }
  const bool by_rows = b.walk == Walk::Columns || (b.walk == Walk::Apart && axis < 0 &&
                                                   std::abs(b.row_step) < std::abs(b.col_step));
  if (axis >= 0) {
    order.lane_length = b.lengths[axis];
    order.run_length = b.block_rows * b.block_cols;
    for (int i = 0; i < axis; ++i) order.run_length *= b.lengths[i];
  } else if (by_rows) {
    order.lane_length = b.block_rows;
    order.run_length = b.block_cols;
  }
  if (order.lane_length == 1) {
    order.run_length = b.count;
  } else {
    order.outer = b.count / (order.lane_length * order.run_length);
  }
  return order;
}

inline BlockDeal BlockDeal::of(const PlaneBlocks& b, int threads, std::uint32_t lanes) {
  const auto all = static_cast<std::uint32_t>(threads);
  BlockDeal d{BlockOrder::of(b)};
  d.lanes = 1;
  d.run = all;
  if (d.lane_length > 1) {
    d.lanes = lanes;
    while (d.lanes * d.run_length < all && d.lanes < d.lane_length && d.lanes < all) d.lanes *= 2;
    while (d.lanes / 2 >= d.lane_length) d.lanes /= 2;
    d.run = all / d.lanes;
  } else if (b.walk == Walk::Staged) {
    d.run = all / b.block_cols * b.block_cols;
  }
  while ((1u << d.lane_shift) < d.lanes) ++d.lane_shift;
  d.run = std::min(d.run, d.run_length);
  d.divide();
  return d;
}

inline void BlockDeal::divide() {
  lane_chunks = (lane_length + lanes - 1) / lanes;
  run_chunks = (run_length + run - 1) / run;
  by_lane_chunks = Divider(lane_chunks);
  by_run_chunks = Divider(run_chunks);
  by_run = Divider(run);
}

}  // namespace tuckfold::cuda
