#include "cli/choose/choose_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/fail.h"

namespace tuckfold::cli {
namespace {

using Kind = Target::Kind;

// A PSNR for comparing: results that lost values are last.
double psnr_of(const Report& report) {
  const double psnr = report.quality.psnr_db;
  return std::isnan(psnr) ? -std::numeric_limits<double>::infinity() : psnr;
}

// Whether a is to be preferred to b; neither is where they are equal.
bool better(const Candidate& a, const Candidate& b, const Target& target, Prefer prefer) {
  if (a.reaches != b.reaches) return a.reaches;
  const bool lost_a = a.report.quality.lost > 0, lost_b = b.report.quality.lost > 0;
  if (lost_a != lost_b) return lost_b;
  const double psnr_a = psnr_of(a.report), psnr_b = psnr_of(b.report);
  if (a.reaches && prefer == Prefer::Fastest) {
    const bool smaller_a = a.report.ratio > 1, smaller_b = b.report.ratio > 1;
    return smaller_a != smaller_b ? smaller_a : a.seconds < b.seconds;
  }
  const std::size_t bytes_a = a.report.packed_bytes, bytes_b = b.report.packed_bytes;
  switch (target.kind) {
    case Kind::Psnr: break;
    case Kind::Ratio:
      if (!a.reaches) return bytes_a < bytes_b;
      return psnr_a != psnr_b ? psnr_a > psnr_b : bytes_a < bytes_b;
    case Kind::MaxError:
      if (!a.reaches) return a.report.quality.max_error < b.report.quality.max_error;
      break;
  }
  if (!a.reaches) return psnr_a > psnr_b;
  return bytes_a != bytes_b ? bytes_a < bytes_b : psnr_a > psnr_b;
}

// "dct_chop | block_quant".
std::string family_of(const CodecSpec& spec) {
  std::string names;
  for (const Stage& stage : spec.stages()) {
    names += (names.empty() ? "" : " | ") + std::string(stage.codec->name);
  }
  return names;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A spec that does not suit the array, or whose library is not installed, is no error here.
void pass_over(const Error& error) {
  if (error.code() != Errc::InvalidArgument && error.code() != Errc::Unsupported) throw;
}

class Search {
 public:
  Search(const Array& part, const Target& target, const ChooseOptions& options)
      : part_(part), target_(target), options_(options), out_(part.bytes()) {}

  // Bisects the ladder for its best rung. One trial compares a rung with the next; if the target is
  // a ratio and the size is fixed, the layout does.
  void climb(const Ladder& ladder) {
    std::vector<Rung> rungs;
    for (const CodecSpec& spec : ladder) {
      try {
        const Layout fit = layout(spec, part_.dtype, part_.shape);
        const bool refuses = options_.for_the_rest && refuses_some(spec, part_.dtype, part_.shape);
        if (!refuses) rungs.push_back({spec, fit});
      } catch (const Error& error) {
        pass_over(error);
      }
    }
    if (rungs.empty()) return;
    try {
      if (target_.kind == Kind::Ratio) {
        climb_while_small(rungs);
      } else {
        climb_until_close(rungs);
      }
    } catch (const Error& error) {
      pass_over(error);
    }
  }

  Choice finish() {
    rank(tried_);
    Choice choice{.best = {}, .tried = std::move(tried_)};
    std::vector<std::string> families;
    for (const Candidate& one : choice.tried) {
      const std::string family = family_of(one.spec);
      const bool seen = std::find(families.begin(), families.end(), family) != families.end();
      if (!one.reaches || seen || families.size() == options_.finalists) continue;
      families.push_back(family);
      choice.best.push_back(one);
    }
    for (Candidate& one : choice.best) measure(one);
    rank(choice.best);  // by the time of several rounds now, where it was that of one
    return choice;
  }

 private:
  struct Rung {
    CodecSpec spec;
    Layout fit;
  };

  // The smallest rung that reaches a quality, or the last one.
  void climb_until_close(const std::vector<Rung>& rungs) {
    static_cast<void>(std::partition_point(
        rungs.begin(), rungs.end(), [&](const Rung& rung) { return !attempt(rung).reaches; }));
  }

  // The closest rung that is small enough, or the first one.
  void climb_while_small(const std::vector<Rung>& rungs) {
    const auto bytes = static_cast<double>(part_.bytes());
    const auto end = std::partition_point(rungs.begin(), rungs.end(), [&](const Rung& rung) {
      const double packed = rung.fit.fixed ? static_cast<double>(rung.fit.max_bytes)
                                           : static_cast<double>(attempt(rung).report.packed_bytes);
      return bytes / packed >= target_.value;
    });
    const Rung& chosen = end == rungs.begin() ? *end : *(end - 1);
    if (chosen.fit.fixed) attempt(chosen);
  }

  // Among equal candidates the one that was tried first stays first.
  void rank(std::vector<Candidate>& candidates) const {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const Candidate& a, const Candidate& b) {
                       return better(a, b, target_, options_.prefer);
                     });
  }

  const Candidate& attempt(const Rung& rung) {
    if (options_.progress) options_.progress(rung.spec.print());
    const auto bench_target = codec_target(rung.spec, part_, out_, options_.threads);
    Candidate one{.spec = rung.spec, .report = checked_report(*bench_target, part_, out_)};
    one.reaches = reaches(one.report, target_);
    if (options_.prefer == Prefer::Fastest) {
      one.seconds =
          seconds_of([&] { bench_target->pack(); }) + seconds_of([&] { bench_target->unpack(); });
    }
    return tried_.emplace_back(std::move(one));
  }

  void measure(Candidate& one) {
    if (options_.progress) options_.progress("measuring " + one.spec.print());
    const auto bench_target = codec_target(one.spec, part_, out_, options_.threads);
    const SpeedOptions rounds{
        .threads = options_.threads, .min_seconds = options_.measure_seconds, .min_rounds = 3};
    const Speed speed = measure_speed(*bench_target, part_, out_, rounds);
    one.report.speed = speed;
    one.seconds =
        static_cast<double>(part_.bytes()) * 1e-9 * (1 / speed.pack.best + 1 / speed.unpack.best);
  }

  const Array& part_;
  const Target& target_;
  const ChooseOptions& options_;
  HugeBuffer out_;
  std::vector<Candidate> tried_;
};

// The figure of one candidate that the target is about.
std::string figure_of(const Report& report, const Target& target) {
  switch (target.kind) {
    case Kind::Psnr: return fmt::format("{} dB", psnr_text(report.quality));
    case Kind::Ratio: return fmt::format("{:.2f}", report.ratio);
    case Kind::MaxError: break;
  }
  return fmt::format("{:.3g}", report.quality.max_error);
}

}  // namespace

bool reaches(const Report& report, const Target& target) {
  if (report.quality.lost > 0) return false;
  switch (target.kind) {
    case Kind::Psnr: return psnr_of(report) >= target.value;
    case Kind::Ratio: return report.ratio >= target.value;
    case Kind::MaxError: break;
  }
  return report.quality.max_error <= target.value;
}

void check_target(const char* verb, const Target& target) {
  const double value = target.value;
  const auto [is_number, rule] = [&]() -> std::pair<bool, const char*> {
    switch (target.kind) {
      case Kind::Psnr: break;
      case Kind::Ratio: return {value > 0, "--target-ratio must be a number above 0"};
      case Kind::MaxError: return {value >= 0, "--max-error must be 0 or a number above"};
    }
    return {true, "--target-psnr must be a number"};
  }();
  if (!is_number || !std::isfinite(value)) invalid("[{}] {}, got {}", verb, rule, value);
}

Choice choose(const Array& part, const Target& target, const ChooseOptions& options) {
  Search search(part, target, options);
  for (const Ladder& ladder : ladders_for(facts_of(part), target)) search.climb(ladder);
  Choice choice = search.finish();
  if (choice.best.empty()) {
    const Report& closest = choice.tried.front().report;
    invalid("[choose] no codec reaches {} on '{}'; closest is {} with {}; ask for less",
            to_string(target), part.name, closest.codec, figure_of(closest, target));
  }
  return choice;
}

std::string to_string(const Target& target) {
  switch (target.kind) {
    case Kind::Psnr: return fmt::format("a PSNR of {} dB", target.value);
    case Kind::Ratio: return fmt::format("a ratio of {}", target.value);
    case Kind::MaxError: break;
  }
  return fmt::format("a largest error of {}", target.value);
}

std::string note_on_exact(std::string_view array, DType dtype, const Target& target) {
  const bool asks_for_all = target.kind == Kind::MaxError && target.value == 0;
  if (!must_be_exact(dtype) || asks_for_all) return "";
  return fmt::format(
      "'{}' is of {}, which is always packed without loss: {} {}; convert it to f32, u8 or u16 "
      "first to lose some",
      array, to_string(dtype), to_string(target),
      target.kind == Kind::Ratio ? "is searched among exact codecs alone" : "has no effect");
}

}  // namespace tuckfold::cli
