// The cases of the contract tests: specs made from the registry's rows, and tensors that suit them.
#pragma once

#include <algorithm>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/tensor_fixture.h"
#include "codec/registry.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold::ref {

// The numbers or words of a parameter that are worth a test, as text.
inline std::vector<std::string> values_of(const ParamInfo& info) {
  if (!info.words.empty()) return {info.words.begin(), info.words.end()};
  // Any number: tolerances, as users give them.
  if (info.step == 0) return {"0.001", "1/4"};
  std::set<double> numbers = {info.min, info.max};
  if (!info.optional) numbers.insert(info.default_value);
  if (info.step < 1) numbers.insert(info.min + 3 * info.step);
  std::vector<std::string> values;
  for (const double number : numbers) values.push_back(to_string(info, number));
  return values;
}

// Defaults, each parameter at its ends and words, and each pair of parameters so; rules between
// parameters drop some.
inline std::vector<CodecSpec> specs_of(const CodecInfo& codec) {
  std::set<std::string> texts = {std::string(codec.name)};
  for (const ParamInfo& first : codec.params) {
    for (const std::string& a : values_of(first)) {
      texts.insert(fmt::format("{}({}={})", codec.name, first.name, a));
      for (const ParamInfo& second : codec.params) {
        if (&second <= &first) continue;
        for (const std::string& b : values_of(second)) {
          texts.insert(fmt::format("{}({}={}, {}={})", codec.name, first.name, a, second.name, b));
        }
      }
    }
  }
  std::vector<CodecSpec> specs;
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    try {
      CodecSpec spec = CodecSpec::parse(text);
      if (seen.insert(spec.print()).second) specs.push_back(std::move(spec));
    } catch (const Error& error) {
      if (error.code() != Errc::InvalidArgument) throw;
    }
  }
  return specs;
}

// One entry per row of the registry, and for chains of them.
struct Group {
  std::string name;
  std::vector<CodecSpec> specs;

  friend std::ostream& operator<<(std::ostream& out, const Group& group) {
    return out << group.name;
  }
};

inline std::vector<Group> groups() {
  std::vector<Group> all;
  std::set<std::string_view> names;
  for (const CodecInfo& codec : list_codecs()) {
    names.insert(codec.name);
    all.push_back({std::string(codec.name), specs_of(codec)});
  }
  Group chains{"chains", {}};
  for (const char* text :
       {"raw | raw", "dct_chop(keep=4) | raw", "raw | dct_chop(keep=2, coef=f16)",
        "dct_chop(keep=4) | dct_chop(block=4, keep=2)", "raw | raw | raw | raw"}) {
    chains.specs.push_back(CodecSpec::parse(text));
  }
  if (names.contains("block_quant")) {
    for (const char* text :
         {"dct_chop(keep=4) | block_quant(bits=8)",
          "dct_chop(keep=3, coef=bf16) | block_quant(bits=4)",
          "dct_chop(keep=2, shape=triangle) | block_quant(bits=2, round=stochastic)",
          "block_quant(bits=8) | raw"}) {
      chains.specs.push_back(CodecSpec::parse(text));
    }
  }
  if (names.contains("zstd")) {
    for (const char* text :
         {"dct_chop(keep=4) | zstd", "block_quant(bits=4) | zstd(level=-3)", "zstd | zstd",
          "zstd | raw", "dct_chop(keep=4) | block_quant(bits=8) | zstd", "shuffle | zstd",
          "shuffle(delta=plane) | zstd(level=-3)",
          "dct_chop(keep=4) | shuffle(delta=xor) | zstd"}) {
      chains.specs.push_back(CodecSpec::parse(text));
    }
  }
  for (const char* text :
       {"bytes_of | bits(width=8)", "raw | mask", "bytes_of | bits", "bits | raw"}) {
    chains.specs.push_back(CodecSpec::parse(text));
  }
  all.push_back(std::move(chains));
  if (names.contains("zfp")) {  // apart, since its library may be missing
    all.push_back(
        {"zfp_chains",
         {CodecSpec::parse("zfp(rate=8) | raw"), CodecSpec::parse("dct_chop(keep=4) | zfp(rate=8)"),
          CodecSpec::parse("zfp(accuracy=1e-3) | zstd(level=-3)")}});
  }
  return all;
}

// Whether layout takes the tensor; anything but InvalidArgument is passed on.
inline bool suits(const CodecSpec& spec, DType dtype, const Shape& shape) {
  try {
    layout(spec, dtype, shape);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    return false;
  }
}

// Why this machine cannot run a codec, such as a library that is not installed, or nothing.
inline std::string missing(const Group& group) {
  const std::vector<float> values(64 * 64);
  for (const CodecSpec& spec : group.specs) {
    if (!suits(spec, DType::F32, {64, 64})) continue;
    std::vector<std::byte> out(layout(spec, DType::F32, {64, 64}).max_bytes);
    try {
      pack(spec, ConstTensorView(values.data(), DType::F32, {64, 64}), out);
    } catch (const Error& error) {
      if (error.code() == Errc::Unsupported) return error.what();
      if (error.code() != Errc::InvalidArgument) throw;  // zeros may not be among its values
    }
  }
  return "";
}

// The bits of the NaN that is stored where arithmetic made one.
inline std::uint64_t canonical_nan(DType dtype) {
  switch (dtype) {
    case DType::F16: return kF16Nan;
    case DType::BF16: return kBF16Nan;
    case DType::F64: return kF64Nan;
    default: return kNanBits;
  }
}

// Whether every bit comes back.
inline bool exact(const CodecSpec& spec) {
  return std::all_of(spec.stages().begin(), spec.stages().end(),
                     [](const Stage& stage) { return row_of(stage).exact; });
}

// A tensor that the spec packs: of the pattern or, for a codec of few values that these are not
// among, of what the chain, or its first codecs, makes of random bytes.
inline Tensor input_for(const CodecSpec& spec, DType dtype, const Shape& shape, Pattern kind,
                        Order order = Order::RowMajor) {
  Tensor in(dtype, shape, order);
  in.fill(kind);
  std::vector<std::byte> packed(layout(spec, dtype, shape).max_bytes);
  const auto packs = [&](auto&& first) {
    try {
      first();
      pack(spec, in.view(), packed);
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::InvalidArgument && error.code() != Errc::CorruptData) throw;
      return false;
    }
  };
  if (packs([] {})) return in;
  std::mt19937 random(1 + static_cast<unsigned>(kind));
  for (std::string text = spec.print(); !text.empty();) {
    const CodecSpec front = CodecSpec::parse(text);
    std::vector<std::byte> bytes(layout(front, dtype, shape).max_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (packs([&] { unpack(front, bytes, in.view()); })) return in;
    text.resize(text.find('|') == text.npos ? 0 : text.rfind('|'));
  }
  if (packs([&] { in.fill(Pattern::Random); })) return in;  // one that takes no infinities
  fail(Errc::Internal, "no values were found that {} packs", spec.print());
}

inline Errc code_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::Internal;  // nothing was thrown
}

}  // namespace tuckfold::ref
