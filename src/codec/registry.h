// The table of codecs: one row each. Adding a codec adds one folder and one row in registry.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tuckfold/codec.h"

namespace tuckfold {

// What a row is given to run with. plan.cc has checked every field.
struct RunContext {
  int threads;
  std::uint64_t seed;
  std::span<std::byte> workspace;  // the row's Layout::workspace_bytes, aligned to a cache line
};

// The same on a CUDA device. All memory is on the device; a row synchronizes only where it says so.
struct CudaContext {
  void* stream;  // a cudaStream_t
  std::uint64_t seed;
  std::span<std::byte> workspace;  // the row's Layout::workspace_bytes, aligned to 256 bytes
  std::uint64_t* device_result;    // as in CudaOptions; null: synchronize and throw instead
  const std::uint64_t* device_seed = nullptr;  // as in CudaOptions
};

inline constexpr std::uint64_t kRefused = CudaOptions::kRefused;

// The workspace of codecs that refuse values: there kernels note what the host must know.
inline constexpr std::size_t kNoteBytes = 64;

inline constexpr std::size_t kMaxStages = 8;  // in a chain

// A codec on a stream of the current CUDA device, for a tensor and bytes there. Codecs of a fixed
// size that refuse no values never synchronize and never allocate. Each is `kCuda` in its folder's
// _cuda.cu, a weak symbol that is null in builds without CUDA.
struct CudaCodec {
  std::size_t (*pack)(const Stage&, const ConstTensorView&, std::span<std::byte> out, CudaContext);
  void (*unpack)(const Stage&, std::span<const std::byte> packed, const TensorView&, CudaContext);
  // Many tensors in fewer launches than one each; null: one each.
  void (*pack_many)(const Stage&, std::span<const ConstTensorView>,
                    std::span<const std::span<std::byte>> out, CudaContext) = nullptr;
  void (*unpack_many)(const Stage&, std::span<const std::span<const std::byte>> packed,
                      std::span<const TensorView>, CudaContext) = nullptr;
  // Whether kernels take every dtype; else those up to i64 in the order of DType.
  bool every_dtype = false;
};
#define TUCKFOLD_WEAK __attribute__((weak))

// Specs that `tuckfold choose` tries, from the fewest bytes and the largest error to the reverse.
// In the text, {x} is the setting, {mean} what dct_quant should know of the values' mean and zeros,
// and {high} the largest value.
struct Ladder {
  enum class Setting : unsigned char {
    Once,     // no setting
    Steps,    // first, first + step, … last
    Bounds,   // bounds on the error that suit the target
    TheBound  // the bound that is asked for, if one is
  };
  std::string_view text;
  Setting setting = Setting::Once;
  double first = 0, last = 0, step = 1;
};

struct Codec {
  CodecInfo info;
  // Whether every bit comes back. Only such codecs are given dtypes that must_be_exact; a layout
  // may still refuse some.
  bool exact = false;
  // A rule between parameters that is broken, with the parameter to point at; null where none can
  // be.
  struct Complaint {
    std::string_view param;
    std::string rule;  // empty: all is well
  };
  Complaint (*check)(const Stage&) = nullptr;
  // Sets parameters whose default depends on the codec that follows in a chain.
  void (*resolve)(Stage&, const Codec& next) = nullptr;
  // May throw InvalidArgument; a fixed codec's size must follow from these three alone, and
  // max_bytes and workspace_bytes must not shrink when a tensor of bytes grows.
  Layout (*layout)(const Stage&, DType, const Shape&);
  // `out` has Layout::max_bytes; the bytes written are returned. May throw InvalidArgument where
  // the values do not fit.
  std::size_t (*pack)(const Stage&, const ConstTensorView&, std::span<std::byte> out, RunContext);
  // `packed` has exactly Layout::max_bytes if the codec is fixed, else at most. May throw
  // CorruptData.
  void (*unpack)(const Stage&, std::span<const std::byte> packed, const TensorView&, RunContext);
  const CudaCodec* cuda = nullptr;  // null: the CPU alone
  // Whether CUDA kernels set CudaContext::device_result: the size varies, or values are refused.
  bool reports = false;
  // How many bytes unpack would fill; null where only the tensor's shape says so, and the codec
  // cannot follow one whose size varies. May throw CorruptData.
  std::size_t (*unpacked_bytes)(const Stage&, std::span<const std::byte> packed) = nullptr;
  // Whether a tensor of that shape packs to what its leading rows pack to alone, one after the
  // other, each in as many bytes: some can then be unpacked without the rest. Null: never.
  bool (*rows_independent)(const Stage&, const Shape&) = nullptr;
  // The most by which a finite value may change, in the units of the values; none: no promise.
  // Null: 0 for an exact codec, none for others.
  std::optional<double> (*error_bound)(const Stage&) = nullptr;
  // Values in a chunk of a file where samples cannot be unpacked alone.
  std::int64_t chunk_elems = 32 << 10;
  std::span<const Ladder> ladders{};
};

// Two stages that one kernel does without the tensor between them. Both functions return false, and
// do nothing, where the tensor does not suit the kernel. Each is a weak symbol, as kCuda is.
struct CudaPair {
  const Codec* first;
  const Codec* second;
  bool (*pack)(const Stage& first, const Stage& second, const ConstTensorView&,
               std::span<std::byte> out, CudaContext);
  bool (*unpack)(const Stage& first, const Stage& second, std::span<const std::byte> packed,
                 const TensorView&, CudaContext);
};

std::span<const Codec* const> codec_rows();
const Codec& row_of(const Stage& stage);
// The kernel that does both stages at once; null where there is none.
const CudaPair* cuda_pair(const Codec& first, const Codec& second);

// Codec::rows_independent and error_bound for a spec. Chains do not promise the first; a chain
// bounds the error where its first stage does and the others are exact.
bool rows_independent(const CodecSpec& spec, const Shape& shape);
std::optional<double> error_bound(const CodecSpec& spec);

// The value of a parameter that the codec has, to be changed.
double& value_of(Stage& stage, std::string_view param);

// The rows that others compare with. A row is defined beside its code.
extern const Codec kRaw;
extern const Codec kDctChop;
extern const Codec kDctQuant;
extern const Codec kBlockQuant;
extern const Codec kBounded;
extern const Codec kBits;
extern const Codec kMask;
extern const Codec kPositive;
extern const Codec kPoolIndex;
extern const Codec kBytesOf;
extern const Codec kShuffle;
extern const Codec kZstd;
extern const Codec kZfp;

}  // namespace tuckfold
