// Speed relative to a plain copy: each round copies (plainly, and with prefetch), packs and unpacks
// once, so that other load on the machine affects all of them alike.
#pragma once

#include "cli/bench/bench_target.h"

namespace tuckfold::cli {

struct SpeedOptions {
  int threads = 1;
  double min_seconds = 0.5;  // of rounds, for one target
  int min_rounds = 7;
};

// GB/s of uncompressed bytes.
struct Rate {
  double best = 0, median = 0;
};

struct Speed {
  Rate copy, copy_prefetched, pack, unpack;
  double pack_of_copy = 0, unpack_of_copy = 0;                // best against best
  double pack_of_copy_median = 0, unpack_of_copy_median = 0;  // median of the rounds' quotients
  int rounds = 0;
};

Speed measure_speed(BenchTarget& bench_target, const Array& array, const HugeBuffer& out,
                    const SpeedOptions& options);

}  // namespace tuckfold::cli
