// Turning tensors into fewer bytes and back.
//
//   const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
//   const Plan plan(spec, DType::F32, {64, 3, 256, 256});
//   std::vector<std::byte> packed(plan.layout().max_bytes);
//   plan.pack(input, packed);      // layout().fixed: exactly max_bytes are written
//   plan.unpack(packed, output);   // output has the dtype and shape of input
//
// One text names a codec everywhere: on the command line, in files, in plans. The packed bytes have
// no header: unpack needs the same spec, dtype and shape. A plan is made once for these three and
// kept; pack() and unpack() without one make it for each call. Functions here check their arguments
// and throw Error. They never print. They allocate nothing beyond the stated workspace, except that
// zstd keeps two contexts a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  bool optional = false;                    // 0 means "not given"
};

// A value of the parameter, as specs have it: "4", "0.001", "1/255", "triangle".
TUCKFOLD_API std::string to_string(const ParamInfo& param, double value);
// What it takes, as in "keep must be …": "a whole number 1..16", "one of square, triangle".
TUCKFOLD_API std::string values_text(const ParamInfo& param);

struct CodecInfo {
  std::string_view name;
  std::string_view summary;
  std::span<const ParamInfo> params;
  bool cuda = false;   // whether this build runs it on CUDA devices, too
  bool exact = false;  // whether every bit comes back
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

// Throws InvalidArgument if the tensor does not fit the codec, or if packing to a fixed size would
// enlarge it. For a variable size, max_bytes may exceed the tensor's bytes by a few per cent.
TUCKFOLD_API Layout layout(const CodecSpec& spec, DType dtype, const Shape& shape);

// For views on Device::Cuda. The tensor, packed bytes and workspace are on the current device, and
// the work is queued on the stream. Codecs of a fixed size never synchronize with it. Codecs of a
// variable size, and exact ones, which may refuse values, synchronize once to read one number,
// unless device_result is given or the stream is being captured into a graph.
struct CudaOptions {
  static constexpr std::uint64_t kRefused = ~std::uint64_t{0};

  void* stream = nullptr;  // a cudaStream_t; null: the default one
  // Device memory for that number: after pack the bytes written, after unpack 0, or kRefused in
  // place of an Error. Codecs that never synchronize do not write it.
  std::uint64_t* device_result = nullptr;
  // Device memory with a number that kernels add to RunOptions::seed when they run, so that each
  // replay of a captured graph can round with other noise. Null: 0.
  const std::uint64_t* device_seed = nullptr;
};

struct RunOptions {
  int threads = 0;                   // 0: every core
  std::uint64_t seed = 0;            // for stochastic rounding; give each tensor its own
  std::span<std::byte> workspace{};  // of Layout::workspace_bytes; empty: allocated for the call
  CudaOptions cuda{};
};

// Whether this build runs codecs on CUDA devices, and how many of them there are.
TUCKFOLD_API bool has_cuda();
TUCKFOLD_API int cuda_devices();

// A spec laid out for tensors of one dtype and shape. Copies are cheap and share their contents;
// any number of threads may use one plan.
class TUCKFOLD_API Plan {
 public:
  // Throws as layout() does.
  Plan(const CodecSpec& spec, DType dtype, const Shape& shape);
  // Nothing if layout() would throw InvalidArgument; *why_not is then its message.
  static std::optional<Plan> make_if_fits(const CodecSpec& spec, DType dtype, const Shape& shape,
                                          std::string* why_not = nullptr);

  const CodecSpec& spec() const noexcept;
  DType dtype() const noexcept;
  const Shape& shape() const noexcept;
  const Layout& layout() const noexcept;

  // Like the functions below; the tensor has the plan's dtype and shape, and any strides.
  std::size_t pack(const ConstTensorView& in, std::span<std::byte> out,
                   const RunOptions& options = {}) const;
  void unpack(std::span<const std::byte> packed, const TensorView& out,
              const RunOptions& options = {}) const;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// Writes the packed bytes to the front of `out` and returns their number (layout's max_bytes if
// CudaOptions::device_result receives it). The bytes depend only on spec, input and seed, not on
// threads, SIMD target, device or strides.
TUCKFOLD_API std::size_t pack(const CodecSpec& spec, const ConstTensorView& in,
                              std::span<std::byte> out, const RunOptions& options = {});

// Fills `out` from packed bytes. Throws CorruptData if their number is not what pack writes. No two
// elements of `out` may share an address; only a stride of 0 is detected.
TUCKFOLD_API void unpack(const CodecSpec& spec, std::span<const std::byte> packed,
                         const TensorView& out, const RunOptions& options = {});

// The same for many tensors, one after the other: in[i] to the front of out[i] with seed + i, and
// the bytes written to written[i]. They share a workspace of the largest tensor's size, and
// device_result points to a number for each. On a CUDA device dct_chop and dct_quant pack many in one
// launch, because one launch each would take longer than the work; block_quant does so for tensors
// of one dtype. All tensors are checked before any is packed, except for values that a codec
// refuses.
TUCKFOLD_API void pack_many(const CodecSpec& spec, std::span<const ConstTensorView> in,
                            std::span<const std::span<std::byte>> out,
                            std::span<std::size_t> written, const RunOptions& options = {});
TUCKFOLD_API void unpack_many(const CodecSpec& spec,
                              std::span<const std::span<const std::byte>> packed,
                              std::span<const TensorView> out, const RunOptions& options = {});
// With a plan for each tensor; all plans have one spec.
TUCKFOLD_API void pack_many(std::span<const Plan> plans, std::span<const ConstTensorView> in,
                            std::span<const std::span<std::byte>> out,
                            std::span<std::size_t> written, const RunOptions& options = {});
TUCKFOLD_API void unpack_many(std::span<const Plan> plans,
                              std::span<const std::span<const std::byte>> packed,
                              std::span<const TensorView> out, const RunOptions& options = {});

}  // namespace tuckfold
