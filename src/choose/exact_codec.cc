#include "choose/exact_codec.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "choose/ladders.h"
#include "codec/registry.h"
#include "container/format.h"

namespace tuckfold {
namespace {

// The bytes of the part in chunks; nothing where the codec does not suit it, or may not suit the rest.
std::optional<std::size_t> packed_bytes(const CodecSpec& spec, const ConstTensorView& part,
                                        int threads) {
  const std::int64_t samples = part.shape[0], elems = part.shape.elems() / samples;
  const std::int64_t most =
      row_of(spec.stages().back()).chunk_elems / std::max<std::int64_t>(elems, 1);
  const std::int64_t full = std::clamp<std::int64_t>(most, 1, samples);
  std::size_t bytes = 0;
  try {
    for (std::int64_t at = 0; at < samples; at += full) {
      const ConstTensorView view = rows_of(part, at, std::min(full, samples - at));
      const Layout fit = layout(spec, view.dtype, view.shape);
      if (refuses_some(spec, view.dtype, view.shape)) return {};
      std::vector<std::byte> packed(fit.max_bytes);
      bytes += pack(spec, view, packed, {.threads = threads});
    }
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument && error.code() != Errc::Unsupported) throw;
    return {};
  }
  return bytes;
}

// The same chain with a higher level of zstd where that saves a hundredth: values whose bytes are
// sorted by significance gain by it, and unpack as fast.
CodecSpec packed_harder(const CodecSpec& spec, std::size_t bytes, const ConstTensorView& part,
                        int threads) {
  const std::string text = spec.print();
  const std::size_t last = text.rfind("zstd");
  if (last == text.npos) return spec;
  const CodecSpec harder = CodecSpec::parse(text.substr(0, last) + "zstd(level=9)");
  const std::optional<std::size_t> less = packed_bytes(harder, part, threads);
  return less && *less < bytes - bytes / 100 ? harder : spec;
}

}  // namespace

CodecSpec choose_exact(const ConstTensorView& part, int threads) {
  CodecSpec best = CodecSpec::parse("zstd");
  const std::optional<std::size_t> plain = packed_bytes(best, part, threads);
  if (!plain) return best;
  std::size_t least = *plain - *plain / 100;
  for (const SpecLadder& ladder : ladders_for(facts_of(part), {Target::Kind::MaxError, 0})) {
    for (const CodecSpec& spec : ladder) {
      const std::optional<std::size_t> bytes = packed_bytes(spec, part, threads);
      if (!bytes || *bytes >= least) continue;
      least = *bytes;
      best = spec;
    }
  }
  return least < *plain - *plain / 100 ? packed_harder(best, least, part, threads) : best;
}

}  // namespace tuckfold
