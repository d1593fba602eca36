// What is measured: a codec of ours or another library's, bound to one array and one thread count.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "cli/dataset/array.h"
#include "tuckfold/codec.h"

namespace tuckfold::cli {

class BenchTarget {
 public:
  BenchTarget(std::string name, bool peer, bool fixed)
      : name_(std::move(name)), peer_(peer), fixed_(fixed) {}
  virtual ~BenchTarget() = default;

  const std::string& name() const noexcept { return name_; }
  bool peer() const noexcept { return peer_; }
  bool fixed() const noexcept { return fixed_; }

  virtual std::size_t pack() = 0;  // returns the packed bytes, which stay inside
  virtual void unpack() = 0;       // of what was packed last
  virtual void finish_unpack() {}  // untimed: what was unpacked is now in the shared output

 private:
  std::string name_;
  bool peer_, fixed_;
};

// `out` is as large as the array; all targets of an array unpack into the same one.
std::unique_ptr<BenchTarget> codec_target(const CodecSpec& spec, const Array& array,
                                          const HugeBuffer& out, int threads);

}  // namespace tuckfold::cli
