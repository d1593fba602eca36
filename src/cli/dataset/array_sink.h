// Receives the values of arrays, one array after the other, from the first value to the last.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cli/dataset/array_out.h"

namespace tuckfold::cli {

class ArraySink {
 public:
  virtual ~ArraySink() = default;
  ArraySink() = default;
  ArraySink(const ArraySink&) = delete;
  ArraySink& operator=(const ArraySink&) = delete;

  virtual void begin(const SourceArray& array, DType dtype, const Shape& shape) = 0;
  virtual void add(std::span<const std::byte> rows) = 0;
  virtual void end() {}     // of an array
  virtual void finish() {}  // of all
};

std::unique_ptr<ArraySink> open_sink(const ArrayOut& out);

}  // namespace tuckfold::cli
