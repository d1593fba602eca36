// Whether tensors share memory, exactly: element by element, not by first and last address. Columns
// of one matrix do not overlap, although their addresses interleave.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "tuckfold/tensor.h"

namespace tuckfold {

bool overlaps(std::span<const std::byte> bytes, const ConstTensorView& view);
bool overlaps(const ConstTensorView& a, const ConstTensorView& b);

// Whether two elements of a tensor share memory.
bool repeats(const ConstTensorView& view);
// Throws InvalidArgument for such an output: its elements would be written in an order that depends on
// threads. verb: for the message, "unpack".
void check_apart(const char* verb, const ConstTensorView& out);

// Which of them are written to; the others may overlap each other.
enum class Writes : unsigned char { Views, Bytes };

// Two that share memory of which one is written to: their numbers, bytes counted after views.
template <class View>
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    std::span<const View> views, std::span<const std::span<const std::byte>> bytes, Writes writes);

}  // namespace tuckfold
