// Searches the codecs of this build for the spec that serves an array best.
//
//   const Array part = trial_part_of(array, 4'000'000);
//   const Choice choice = choose(part, {Target::Kind::Psnr, 45}, {});
//   choice.best.front().report.codec   // "dct_quant(rate=3.5, dc=4)"
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "cli/bench/report.h"
#include "cli/choose/choose_ladders.h"

namespace tuckfold::cli {

// Which of the candidates that reach the target is best. If the target is a ratio, Smallest takes
// the one closest to the original, because none is larger than the target. Fastest takes a spec
// that does not shrink the array only if no other reaches the target.
enum class Prefer { Smallest, Fastest };

struct ChooseOptions {
  Prefer prefer = Prefer::Smallest;
  int threads = 1;
  std::size_t finalists = 6;     // codecs, at least one, of which the speed is measured
  double measure_seconds = 0.1;  // for each of them
  std::function<void(std::string_view)> progress{};  // called with each spec before it is tried
  // The rest of the array must be taken, too: exact codecs that refuse some values are passed over.
  bool for_the_rest = false;
};

struct Candidate {
  CodecSpec spec;
  Report report;
  bool reaches = false;
  double seconds = 0;  // of packing and unpacking; 0 where nobody asked
};

struct Choice {
  std::vector<Candidate> best;   // the best spec of each codec or chain that reaches the target
  std::vector<Candidate> tried;  // everything, those that reach the target first; both best first
};

bool reaches(const Report& report, const Target& target);

// Throws InvalidArgument where the target is no number that can be reached.
void check_target(const char* verb, const Target& target);

// Throws InvalidArgument if nothing reaches the target, and names the closest candidate. Skips
// specs that do not suit the array or whose library is missing.
Choice choose(const Array& part, const Target& target, const ChooseOptions& options);

// "a PSNR of 45 dB", "a ratio of 8", "a largest error of 0.001".
std::string to_string(const Target& target);

// What to say of an array that loses nothing whatever is asked for, since its dtype allows no loss;
// else nothing.
std::string note_on_exact(std::string_view array, DType dtype, const Target& target);

}  // namespace tuckfold::cli
