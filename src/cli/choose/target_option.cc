#include "cli/choose/target_option.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "cli/terminal/status_line.h"
#include "container/resume.h"

namespace tuckfold::cli {

void TargetOption::add_to(Command& verb) {
  verb.add_option("--target-psnr", psnr_, "Look for a codec with this PSNR: a goal")
      .type_name("DB");
  verb.add_option("--target-ratio", ratio_, "Look for a codec so many times smaller: a goal")
      .type_name("R");
  verb.add_option("--max-error", max_error_,
                  "No value of the file may differ by more; 0: nothing is lost")
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

namespace {

bool takes(const CodecSpec& spec, const ConstTensorView& view) {
  try {
    layout(spec, view.dtype, view.shape);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    return false;
  }
}

// The ratio of a part in chunks with their heads, as a file has them, and with marks of fill values.
double ratio_in_file(const CodecSpec& spec, ArrayInfo array, const Array& part, int threads) {
  array.codec = spec;
  std::vector<ArrayInfo> arrays = {array};
  check_arrays(arrays);
  add_masks(arrays);
  const std::int64_t samples = part.shape[0];
  const std::int64_t full = std::min(arrays[0].samples_per_chunk, samples);
  const std::vector<std::uint8_t> none(
      part.marks.empty() ? static_cast<std::size_t>(full * array.shape.elems()) : 0);
  std::size_t bytes = 0;
  for (std::int64_t at = 0; at < samples; at += full) {
    const Shape shape = with_samples(std::min(full, samples - at), array.shape);
    const ConstTensorView values = rows_of(part.view(), at, shape[0]);
    const std::uint8_t* marks =
        part.marks.empty() ? none.data() : part.marks.data() + at * array.shape.elems();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const ConstTensorView view = i == 0 ? values : ConstTensorView(marks, DType::U8, shape);
      const bool too_few = shape[0] < full && !takes(arrays[i].codec, view);
      const CodecSpec used = too_few ? CodecSpec::parse("raw") : arrays[i].codec;
      std::vector<std::byte> frame(frame_bytes(used, view.dtype, shape));
      bytes += write_frame(used, view, frame, {.threads = threads});
    }
  }
  return static_cast<double>(part.bytes()) / static_cast<double>(bytes);
}

}  // namespace

Candidate choose_for(const Array& part, const ArrayInfo& array, const Target& target, int threads,
                     bool quiet) {
  StatusLine progress;
  const ChooseOptions options{.threads = threads,
                              .progress =
                                  [&](std::string_view text) {
                                    if (!quiet) progress.show(text);
                                  },
                              .for_the_rest = true};
  Candidate best = std::move(choose(part, target, options).best.front());
  if (target.kind != Target::Kind::Ratio) return best;
  Target harder = target;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double ratio = ratio_in_file(best.spec, array, part, threads);
    if (ratio >= target.value) break;
    harder.value *= 1.0005 * target.value / ratio;
    try {
      best = std::move(choose(part, harder, options).best.front());
    } catch (const Error& error) {  // out of reach by a little
      if (error.code() != Errc::InvalidArgument) throw;
      break;
    }
  }
  return best;
}

}  // namespace tuckfold::cli
