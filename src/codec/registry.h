// The table of codecs: one row each. Adding a codec adds one row here and one glob of files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tuckfold/codec.h"

namespace tuckfold {

// What a row is given to run with; every field is settled and checked by codec.cc.
struct RunContext {
  int threads;
  std::uint64_t seed;
  std::span<std::byte> workspace;  // the row's Layout::workspace_bytes, from a cache line on
};

// The same on a CUDA device: everything there, nothing waited for but what is said.
struct CudaContext {
  void* stream;  // a cudaStream_t
  std::uint64_t seed;
  std::span<std::byte> workspace;  // the row's Layout::workspace_bytes, from 256 bytes on
  std::uint64_t* outcome;          // RunOptions::outcome; null: wait, and throw what it would say
};

// The workspace of codecs that refuse values: there kernels note what the host must know.
inline constexpr std::size_t kNoteBytes = 64;

inline constexpr std::size_t kMaxStages = 8;  // in a chain

struct Codec {
  CodecInfo info;
  // Whether every bit comes back. i32 and i64 hold what must stay exact, and only such codecs are
  // given them; a layout may still refuse some dtypes.
  bool exact = false;
  // A rule between parameters that is broken, with the parameter to point at; null where none can
  // be.
  struct Complaint {
    std::string_view param;
    std::string rule;  // empty: all is well
  };
  Complaint (*check)(const Stage&) = nullptr;
  // Settles what depends on the codec that follows in a chain; null where nothing does.
  void (*settle)(Stage&, const Stage& next) = nullptr;
  // May throw InvalidArgument; a fixed codec's size must follow from these three alone, and
  // max_bytes and workspace_bytes must not shrink when a tensor of bytes grows.
  Layout (*layout)(const Stage&, DType, const Shape&);
  // `out` has Layout::max_bytes; the bytes written are returned. May throw InvalidArgument where
  // the values do not fit.
  std::size_t (*pack)(const Stage&, const ConstTensorView&, std::span<std::byte> out, RunContext);
  // `packed` has exactly Layout::max_bytes if the codec is fixed, else at most. May throw
  // CorruptData.
  void (*unpack)(const Stage&, std::span<const std::byte> packed, const TensorView&, RunContext);
  // The same on a stream of the current CUDA device, for a tensor and bytes that lie there; null
  // where the codec runs on the CPU alone. Codecs of a fixed size that refuse no values never wait
  // and never allocate.
  std::size_t (*pack_cuda)(const Stage&, const ConstTensorView&, std::span<std::byte> out,
                           CudaContext) = nullptr;
  void (*unpack_cuda)(const Stage&, std::span<const std::byte> packed, const TensorView&,
                      CudaContext) = nullptr;
  // The same for many tensors, in fewer launches than one each; null where there is no such way.
  void (*pack_cuda_many)(const Stage&, std::span<const ConstTensorView>,
                         std::span<const std::span<std::byte>> out, CudaContext) = nullptr;
  void (*unpack_cuda_many)(const Stage&, std::span<const std::span<const std::byte>> packed,
                           std::span<const TensorView>, CudaContext) = nullptr;
  // Whether those leave something in CudaContext::outcome: the size varies, or values are refused.
  bool reports = false;
  // How many bytes unpack would fill; null where only the tensor's shape tells, and the codec
  // cannot follow one whose size varies. May throw CorruptData.
  std::size_t (*unpacked_bytes)(const Stage&, std::span<const std::byte> packed) = nullptr;
  // Whether a tensor of that shape packs to what its leading rows pack to alone, one behind the
  // other, each in as many bytes: some can then be unpacked without the rest. Null: never.
  bool (*rows_independent)(const Stage&, const Shape&) = nullptr;
};

// Two stages that one kernel does without the tensor between them. Both functions return false, and
// do nothing, where the tensor does not suit the kernel.
struct CudaPair {
  const Codec* first;
  const Codec* second;
  bool (*pack)(const Stage& first, const Stage& second, const ConstTensorView&,
               std::span<std::byte> out, CudaContext);
  bool (*unpack)(const Stage& first, const Stage& second, std::span<const std::byte> packed,
                 const TensorView&, CudaContext);
};

std::span<const Codec> codec_rows();
const Codec& row_of(const Stage& stage);
// The same as Codec::rows_independent for a spec; chains do not promise it.
bool rows_independent(const CodecSpec& spec, const Shape& shape);

// The value of a parameter that the codec has, to be changed.
double& value_of(Stage& stage, std::string_view param);

// Each codec's row, defined beside its code.
extern const Codec kRaw;
extern const Codec kDctChop;
extern const Codec kDctQuant;
extern const Codec kBlockQuant;
extern const Codec kBounded;
extern const Codec kBits;
extern const Codec kMask;
extern const Codec kBytesOf;
extern const Codec kZstd;
extern const Codec kZfp;

}  // namespace tuckfold
