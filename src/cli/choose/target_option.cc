#include "cli/choose/target_option.h"

#include <vector>

#include "base/fail.h"
#include "cli/terminal/status_line.h"

namespace tuckfold::cli {

void TargetOption::add_to(Command& verb) {
  verb.add_option("--target-psnr", psnr_, "Look for a codec with this PSNR").type_name("DB");
  verb.add_option("--target-ratio", ratio_, "Look for a codec so many times smaller")
      .type_name("R");
  verb.add_option("--max-error", max_error_, "Look for a codec with no larger error")
      .type_name("E");
  verb.add_option("--trial-values", trial_values_, "Values to try codecs on, default 4000000")
      .type_name("N")
      .range(std::int64_t{1}, std::int64_t{1} << 62);
}

std::optional<Target> TargetOption::get(const char* verb, const CodecOption& codec) const {
  std::vector<Target> given;
  if (psnr_) given.push_back({Target::Kind::Psnr, *psnr_});
  if (ratio_) given.push_back({Target::Kind::Ratio, *ratio_});
  if (max_error_) given.push_back({Target::Kind::MaxError, *max_error_});
  if (given.size() + (codec.for_all() ? 1 : 0) > 1) {
    invalid(
        "[{}] --codec, --target-psnr, --target-ratio and --max-error exclude each other; give one",
        verb);
  }
  if (given.empty()) return std::nullopt;
  check_target(verb, given.front());
  return given.front();
}

Candidate choose_for(const Array& part, const Target& target, int threads, bool quiet) {
  StatusLine progress;
  Choice choice = choose(part, target, {.threads = threads, .progress = [&](std::string_view text) {
                                          if (!quiet) progress.show(text);
                                        }});
  return std::move(choice.best.front());
}

}  // namespace tuckfold::cli
