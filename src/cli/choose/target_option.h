// --target-psnr, --target-ratio and --max-error of pack and convert: a codec is looked for.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/choose/choose_search.h"
#include "cli/dataset/codec_option.h"
#include "cli/terminal/command.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

class TargetOption {
 public:
  void add_to(Command& verb);

  // The target, if one is given. Throws InvalidArgument for several, also beside a --codec for all
  // arrays.
  std::optional<Target> get(const char* verb, const CodecOption& codec) const;
  std::int64_t trial_values() const noexcept { return trial_values_; }

 private:
  std::optional<double> psnr_, ratio_, max_error_;
  std::int64_t trial_values_ = 4'000'000;
};

// The best codec for an array that is to be packed in a file, found on a part of it, with what it
// does to that. A ratio is one of the array in the file, where chunks have heads. Shows on the
// terminal what it tries, unless quiet.
Candidate choose_for(const Array& part, const ArrayInfo& array, const Target& target, int threads,
                     bool quiet);

}  // namespace tuckfold::cli
