// What the codecs' fuzz targets make of their bytes: a codec, a dtype, a small shape, and values
// from what is left.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }

  // One codec or two, each parameter given or left at its default; nothing where they do not fit.
  std::optional<CodecSpec> spec() {
    std::string text;
    const int stages = byte() % 4 == 3 ? 2 : 1;
    for (int stage = 0; stage < stages; ++stage) {
      const CodecInfo& codec = codec_of(byte());
      std::string list;
      for (const ParamInfo& param : codec.params) {
        const std::uint8_t choice = byte();
        if (choice % 4 == 0) continue;
        list +=
            (list.empty() ? "" : ",") + std::string(param.name) + "=" + value(param, choice / 4);
      }
      text += (text.empty() ? "" : "|") + std::string(codec.name) + "(" + list + ")";
    }
    try {
      return CodecSpec::parse(text);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  DType dtype() { return kDTypes[byte() % kDTypes.size()]; }

  // At most 2^14 elements.
  Shape shape() {
    Shape axes;
    std::int64_t elems = 1;
    for (int rank = byte() % 5; rank > 0; --rank) {
      const std::int64_t length = byte() % 80;
      if (elems * length > 1 << 14) break;
      axes.push_back(length);
      elems *= length;
    }
    return axes;
  }

  // The rest of the input, over and over.
  std::vector<std::byte> bytes(std::size_t count) const {
    std::vector<std::byte> all(count);
    for (std::size_t i = 0; i < count && !rest_.empty(); ++i) {
      all[i] = static_cast<std::byte>(rest_[i % rest_.size()]);
    }
    return all;
  }
  std::size_t left() const { return rest_.size(); }

 private:
  // A codec whose name's letters sum up to the byte, so that seeds stay what they are when codecs
  // are added; or any.
  static const CodecInfo& codec_of(std::uint8_t choice) {
    for (const CodecInfo& codec : list_codecs()) {
      const int sum = std::accumulate(codec.name.begin(), codec.name.end(), 0);
      if (static_cast<std::uint8_t>(sum) == choice) return codec;
    }
    return list_codecs()[choice % list_codecs().size()];
  }

  static std::string value(const ParamInfo& param, int choice) {
    if (!param.words.empty()) {
      return std::string(param.words[static_cast<std::size_t>(choice) % param.words.size()]);
    }
    if (param.step == 0) {  // any number: in decades
      const double decade = std::pow(10.0, choice % 16 - 12);
      return to_string(param, std::clamp(decade, param.min, param.max));
    }
    // Every number, or every other; wide ranges in powers of two.
    const double count = (param.max - param.min) / param.step + 1;
    if (count > 128) {
      return to_string(param, std::min(param.max, std::ldexp(param.min, choice % 16)));
    }
    const double place = std::fmod(count <= 64 ? choice : 2 * choice, count);
    return to_string(param, param.min + param.step * place);
  }

  std::span<const std::uint8_t> rest_;
};

// Whether the codec packs the values into `packed`, of Layout::max_bytes; those of a codec of few
// values may not fit.
inline bool packs(const CodecSpec& spec, const ConstTensorView& in,
                  std::vector<std::byte>& packed) {
  try {
    packed.resize(pack(spec, in, packed, {.threads = 1}));
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    return false;
  }
}

// The input's bytes as values that the codec packs: as they are, or what the codec makes of them.
// Nothing where neither fits.
inline std::optional<std::vector<std::byte>> values_for(const CodecSpec& spec, DType dtype,
                                                        const Shape& shape, const Layout& fit,
                                                        const Input& input) {
  std::vector<std::byte> values =
      input.bytes(static_cast<std::size_t>(shape.elems()) * size_bytes(dtype));
  if (dtype == DType::Bool) {
    for (std::byte& value : values) value &= std::byte{1};
  }
  std::vector<std::byte> packed(fit.max_bytes);
  if (packs(spec, ConstTensorView(values.data(), dtype, shape), packed)) return values;
  try {
    unpack(spec, input.bytes(fit.max_bytes), TensorView(values.data(), dtype, shape),
           {.threads = 1});
  } catch (const Error& error) {
    if (error.code() != Errc::CorruptData) throw;
    return std::nullopt;
  }
  packed.assign(fit.max_bytes, std::byte{0});
  if (!packs(spec, ConstTensorView(values.data(), dtype, shape), packed)) return std::nullopt;
  return values;
}

// Nothing where layout refuses; any other error is the target's failure.
inline std::optional<Layout> layout_or_nothing(const CodecSpec& spec, DType dtype,
                                               const Shape& shape) {
  try {
    return layout(spec, dtype, shape);
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    return std::nullopt;
  }
}

// Nothing where the values do not fit the codec, or a library that it needs is not installed.
inline std::optional<std::size_t> pack_or_nothing(const CodecSpec& spec, const ConstTensorView& in,
                                                  std::span<std::byte> out,
                                                  const RunOptions& options) {
  try {
    return pack(spec, in, out, options);
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument && error.code() != Errc::Unsupported) throw;
    return std::nullopt;
  }
}

}  // namespace tuckfold
