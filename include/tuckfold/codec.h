// Turning tensors into fewer bytes and back.
//
//   CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
//   Layout fit = layout(spec, DType::F32, {64, 3, 256, 256});
//   std::vector<std::byte> packed(fit.max_bytes);
//   pack(spec, input, packed);      // fit.fixed: exactly max_bytes are written
//   unpack(spec, packed, output);   // output has the dtype and shape of input
//
// One text names a codec everywhere: on the command line, in files, in plans. The packed bytes have
// no header: the same spec, dtype and shape must be given to unpack. Functions here check their
// arguments and throw Error; they never print, and allocate nothing beyond the stated workspace;
// but for zstd, of whose contexts a thread keeps one each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/export.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

// ---- what codecs there are ----------------------------------------------------------------------

// One parameter of a codec: a number in a range, or one of a few words.
struct ParamInfo {
  std::string_view name;
  std::string_view summary;
  double default_value = 0;                 // a number, or an index into words
  double min = 0, max = 0;                  // for numbers, inclusive
  double step = 1;                          // numbers are multiples of it; 0: any in the range
  std::span<const std::string_view> words;  // for words; empty means a number
  bool headline = false;                    // printed even at its default
  bool optional = false;                    // 0 stands for "not given"
};

// A value of the parameter, as specs have it: "4", "0.001", "1/255", "triangle".
TUCKFOLD_API std::string to_string(const ParamInfo& param, double value);
// What it takes, as in "keep must be …": "a whole number 1..16", "one of square, triangle".
TUCKFOLD_API std::string values_text(const ParamInfo& param);

struct CodecInfo {
  std::string_view name;
  std::string_view summary;
  std::span<const ParamInfo> params;
  bool cuda = false;  // whether this build runs it on CUDA devices, too
};

// Every codec of this build, in the order of the documentation.
TUCKFOLD_API std::span<const CodecInfo> list_codecs();

// ---- naming one ---------------------------------------------------------------------------------

// One codec with all its parameters, defaults filled in, in the order of CodecInfo::params.
struct Stage {
  const CodecInfo* codec;
  std::vector<double> values;

  // The value of a parameter that the codec has: a number, or the index of a word.
  TUCKFOLD_API double operator[](std::string_view param) const;
  friend bool operator==(const Stage& a, const Stage& b) = default;
};

// A codec, or a chain `a | b` in which b packs what a produced.
class TUCKFOLD_API CodecSpec {
 public:
  // Reads `name(param=value, …) | name(…)`. Throws InvalidArgument with the text, a caret under the
  // offending word and the nearest valid one.
  static CodecSpec parse(std::string_view text);

  // The canonical text: parse(s.print()) == s, and equal specs print alike.
  std::string print() const;

  std::span<const Stage> stages() const noexcept { return {stages_.data(), stages_.size()}; }
  friend bool operator==(const CodecSpec& a, const CodecSpec& b) = default;

 private:
  std::vector<Stage> stages_;
};

// ---- packing ------------------------------------------------------------------------------------

// What packing a tensor of some dtype and shape takes.
struct Layout {
  std::size_t max_bytes = 0;        // room that pack needs in its output
  bool fixed = true;                // whether pack always writes exactly max_bytes
  std::size_t workspace_bytes = 0;  // scratch that pack and unpack each need
  DType dtype = DType::U8;          // the packed bytes, max_bytes of them, seen as a tensor:
  Shape shape;                      //   row-major, of this shape
};

// Throws InvalidArgument where the tensor does not fit the codec, or where packing to a fixed size
// would grow it. Where the size varies max_bytes may pass the tensor's by a few per cent.
TUCKFOLD_API Layout layout(const CodecSpec& spec, DType dtype, const Shape& shape);

struct RunOptions {
  int threads = 0;                   // 0: every core
  std::uint64_t seed = 0;            // for stochastic rounding; give each tensor its own
  std::span<std::byte> workspace{};  // of Layout::workspace_bytes; empty: allocated for the call

  // For views on Device::Cuda: tensor, packed bytes and workspace lie on the current device, and
  // the work is left to this stream. Only codecs whose size varies, and exact ones, which may
  // refuse values, wait for it: for one number, unless they are told where to leave it. They do not
  // wait while the stream records a graph either. Other codecs leave `outcome` alone.
  void* stream = nullptr;            // a cudaStream_t; null: the default one
  std::uint64_t* outcome = nullptr;  // where the device can write: after pack the bytes written,
                                     // after unpack 0, or kRefused instead of an Error
};

inline constexpr std::uint64_t kRefused = ~std::uint64_t{0};

// Whether this build runs codecs on CUDA devices, and how many of them there are.
TUCKFOLD_API bool has_cuda();
TUCKFOLD_API int cuda_devices();

// Writes the packed bytes to the front of `out` and returns how many there are (layout's max_bytes
// where that is left to RunOptions::outcome). The bytes depend on spec, input and seed alone: not
// on threads, SIMD target, device or strides.
TUCKFOLD_API std::size_t pack(const CodecSpec& spec, const ConstTensorView& in,
                              std::span<std::byte> out, const RunOptions& options = {});

// Fills `out` from packed bytes. Throws CorruptData if their number is not what pack writes. No two
// elements of `out` may share an address; only a stride of 0 is noticed.
TUCKFOLD_API void unpack(const CodecSpec& spec, std::span<const std::byte> packed,
                         const TensorView& out, const RunOptions& options = {});

// The same for many tensors, one after the other: in[i] to the front of out[i] with seed + i, the
// bytes written to written[i]. They share a workspace, of what the largest needs, and `outcome`
// points to a number for each. On a CUDA device dct_chop does small tensors in one launch, where
// one each would take longer than the work. What is wrong with one of them is found before others
// are touched, but for values that a codec refuses.
TUCKFOLD_API void pack_many(const CodecSpec& spec, std::span<const ConstTensorView> in,
                            std::span<const std::span<std::byte>> out,
                            std::span<std::size_t> written, const RunOptions& options = {});
TUCKFOLD_API void unpack_many(const CodecSpec& spec,
                              std::span<const std::span<const std::byte>> packed,
                              std::span<const TensorView> out, const RunOptions& options = {});

}  // namespace tuckfold
