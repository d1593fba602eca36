// zfp: blocks of 4 x 4 values with libzfp, which is loaded on first use. It trusts its input, so
// values are checked before it packs, and it unpacks only from memory of ours that holds the most
// it can read.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "base/fail.h"
#include "base/fp_env.h"
#include "base/strided.h"
#include "codec/registry.h"
#include "codec/zfp/zfp_library.h"

namespace tuckfold::zfp {
namespace {

constexpr ParamInfo kParams[] = {
    {.name = "rate",
     .summary = "bits a value; the size is fixed",
     .min = 1.0 / 16,
     .max = 64,
     .step = 1.0 / 16,
     .optional = true},
    {.name = "accuracy",
     .summary = "largest error of a value; the size varies",
     .min = 1e-280,
     .max = 1e280,
     .step = 0,
     .optional = true},
    {.name = "precision",
     .summary = "bit planes kept of a block; the size varies",
     .min = 1,
     .max = 64,
     .optional = true},
};

Codec::Complaint check(const Stage& stage) {
  std::array<std::string_view, 3> given;
  std::size_t count = 0;
  for (const ParamInfo& param : kParams) {
    if (stage[param.name] != 0) given[count++] = param.name;
  }
  if (count == 0) return {"", "zfp needs one of rate, accuracy and precision, as in zfp(rate=8)"};
  if (count == 1) return {};
  return {given[1], fmt::format("zfp takes one of rate, accuracy and precision, got {} and {}",
                                given[0], given[1])};
}

// ---- sizes --------------------------------------------------------------------------------------

// The tensor as zfp sees it: leading axes folded into rows, or one axis where either side is 1.
struct Plane {
  explicit Plane(const Shape& shape) {
    const std::int64_t elems = shape.elems();
    const std::int64_t cols = shape.rank() < 2 ? 1 : shape[shape.rank() - 1];
    const std::int64_t rows = elems == 0 ? 0 : elems / cols;
    const bool line = rows == 1 || cols == 1;
    nx = static_cast<std::size_t>(line ? elems : cols);
    ny = static_cast<std::size_t>(line ? 0 : rows);
  }
  unsigned dims() const { return ny == 0 ? 1 : 2; }
  unsigned block_elems() const { return ny == 0 ? 4 : 16; }
  std::size_t blocks() const { return (nx / 4 + (nx % 4 != 0)) * (ny == 0 ? 1 : (ny + 3) / 4); }

  std::size_t nx, ny;  // ny is 0 for one axis
};

// The most bits that libzfp writes or reads for a block, which at a fixed rate is every block's.
std::size_t block_bits(const Stage& stage, DType dtype, const Plane& plane) {
  const std::size_t exponent_bits = dtype == DType::F32 ? 1 + 8 : 1 + 11;
  const std::size_t value_bits = 8 * size_bytes(dtype), elems = plane.block_elems();
  if (const double rate = stage["rate"]; rate != 0) {
    const auto bits = static_cast<std::size_t>(std::floor(static_cast<double>(elems) * rate + 0.5));
    return std::max(bits, exponent_bits);
  }
  const auto precision = static_cast<std::size_t>(stage["precision"]);
  const std::size_t planes = precision == 0 ? value_bits : std::min(precision, value_bits);
  return exponent_bits + elems - 1 + elems * planes;
}

// The buffer for the bits as libzfp writes and reads them: whole words, and one more word after the
// last. It is the front of the workspace; a buffer for values that are not contiguous follows it.
std::size_t bits_room(std::size_t packed_bytes) { return (packed_bytes + 63) / 64 * 64 + 64; }

Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  if (dtype != DType::F32 && dtype != DType::F64) {
    invalid("[layout] zfp takes f32 and f64, got {}; convert to f32 first", to_string(dtype));
  }
  constexpr double kLeastF32 = 1e-28;  // far above what is flushed to 0
  if (const double accuracy = stage["accuracy"];
      accuracy != 0 && accuracy < kLeastF32 && dtype == DType::F32) {
    invalid("[layout] zfp's accuracy must be at least {} for f32, got {}; scale the values",
            kLeastF32, accuracy);
  }
  const bool fixed = stage["rate"] != 0;
  if (shape.elems() == 0) return {.fixed = fixed, .shape = {0}};
  const Plane plane(shape);
  const std::size_t bits = block_bits(stage, dtype, plane);
  if (plane.blocks() > (std::size_t{1} << 62) / bits) {
    invalid("[layout] {} of {} is too large for zfp", to_string(dtype), to_string(shape));
  }
  const std::size_t bytes = (plane.blocks() * bits + 7) / 8;
  const std::size_t values = static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
  return {.max_bytes = bytes,
          .fixed = fixed,
          .workspace_bytes = bits_room(bytes) + values,
          .dtype = DType::U8,
          .shape = {static_cast<std::int64_t>(bytes)}};
}

// ---- values -------------------------------------------------------------------------------------

// Values that libzfp gets wrong without an error. A block whose largest value is below kTiny
// overflows the factor that scales it to integers; one above kHuge may become infinite.
template <class Float>
struct Limits;
template <>
struct Limits<float> {
  using Bits = std::uint32_t;
  static constexpr float kTiny = 0x1p-98f, kHuge = 0x1p126f;
  static constexpr const char* kHugeText = "2^126";
};
template <>
struct Limits<double> {
  using Bits = std::uint64_t;
  static constexpr double kTiny = 0x1p-962, kHuge = 0x1p1022;
  static constexpr const char* kHugeText = "2^1022";
};

template <class Float>
typename Limits<Float>::Bits magnitude(Float value) {
  using Bits = typename Limits<Float>::Bits;
  return std::bit_cast<Bits>(value) & (~Bits{0} >> 1);
}

template <class Float>
bool is_tiny(Float value) {  // but not 0
  return magnitude(value) - 1 < magnitude(Limits<Float>::kTiny) - 1;
}

// Magnitudes as whole numbers: NaN and infinities are the largest.
template <class Float>
bool is_huge(Float value) {
  return magnitude(value) >= magnitude(Limits<Float>::kHuge);
}

// Refuses values that libzfp would not restore; returns whether some count as 0.
template <class Float>
bool look_at(const Float* values, std::size_t count) {
  bool huge = false, tiny = false;
  for (std::size_t i = 0; i < count; ++i) {
    huge |= is_huge(values[i]);
    tiny |= is_tiny(values[i]);
  }
  if (huge) {
    const Float* bad = std::find_if(values, values + count, is_huge<Float>);
    invalid(
        "[pack] zfp takes finite values below {} in magnitude, element {} is {}; replace it, "
        "or use zstd",
        Limits<Float>::kHugeText, bad - values, *bad);
  }
  return tiny;
}

// The values for libzfp: the tensor's own memory if possible, else a copy in `scratch`.
template <class Float>
const void* finite_values(const FlatReader& reader, std::byte* scratch) {
  const auto count = static_cast<std::size_t>(reader.elems());
  const void* values = reader.dense(0, reader.elems());
  if (values == nullptr) {
    reader.gather_bytes(0, reader.elems(), scratch);
    values = scratch;
  }
  if (!look_at(static_cast<const Float*>(values), count)) return values;
  if (values != scratch) std::memcpy(scratch, values, count * sizeof(Float));
  auto* copy = reinterpret_cast<Float*>(scratch);
  std::replace_if(copy, copy + count, is_tiny<Float>, Float{0});
  return scratch;
}

// ---- libzfp -------------------------------------------------------------------------------------

// libzfp's descriptions of one call; it allocates them itself.
class Session {
 public:
  Session(const Stage& stage, DType dtype, const Plane& plane, const void* values, std::byte* bits,
          std::size_t bits_bytes)
      : zfp_(zfp_library()),
        type_(dtype == DType::F32 ? ZfpLibrary::kFloat : ZfpLibrary::kDouble),
        field_(zfp_.zfp_field_2d(const_cast<void*>(values), type_, plane.nx, plane.ny),
               zfp_.zfp_field_free),
        bits_(zfp_.stream_open(bits, bits_bytes), zfp_.stream_close),
        stream_(zfp_.zfp_stream_open(bits_.get()), zfp_.zfp_stream_close) {
    if (!field_ || !bits_ || !stream_) throw std::bad_alloc();
    if (const double rate = stage["rate"]; rate != 0) {
      zfp_.zfp_stream_set_rate(stream_.get(), rate, type_, plane.dims(), 0);
    } else if (const double accuracy = stage["accuracy"]; accuracy != 0) {
      zfp_.zfp_stream_set_accuracy(stream_.get(), accuracy);
    } else {
      zfp_.zfp_stream_set_precision(stream_.get(), static_cast<unsigned>(stage["precision"]));
    }
    zfp_.zfp_stream_rewind(stream_.get());
  }

  std::size_t compress() { return zfp_.zfp_compress(stream_.get(), field_.get()); }
  std::size_t decompress() { return zfp_.zfp_decompress(stream_.get(), field_.get()); }

 private:
  using Handle = std::unique_ptr<void, void (*)(void*)>;
  const ZfpLibrary& zfp_;
  int type_;
  Handle field_, bits_, stream_;
};

// Bytes padded to words. libzfp counts in words of its build, and other builds read them.
std::size_t padded(std::size_t bytes, std::size_t word_bytes) {
  return (bytes + word_bytes - 1) / word_bytes * word_bytes;
}
constexpr std::size_t kMaxWordBytes = 8;

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  if (reader.elems() == 0) return 0;
  const FpEnv env;
  const std::size_t room = bits_room(out.size());
  std::byte* bits = run.workspace.data();
  std::byte* scratch = bits + room;
  const void* values = in.dtype == DType::F32 ? finite_values<float>(reader, scratch)
                                              : finite_values<double>(reader, scratch);
  Session session(stage, in.dtype, Plane(in.shape), values, bits, room);
  const std::size_t written = session.compress();
  if (written == 0 || written > padded(out.size(), kMaxWordBytes)) {
    fail(Errc::Internal, "[pack] libzfp wrote {} bytes where {} were expected", written,
         out.size());
  }
  const std::size_t bytes = stage["rate"] != 0 ? out.size() : std::min(written, out.size());
  std::memcpy(out.data(), bits, bytes);
  return bytes;
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FlatWriter writer(out);
  if (writer.elems() == 0) return;
  const FpEnv env;
  // libzfp reads no more than this, whatever the bits say.
  const std::size_t room = bits_room(layout_of(stage, out.dtype, out.shape).max_bytes);
  std::byte* bits = run.workspace.data();
  std::byte* scratch = bits + room;
  std::copy(packed.begin(), packed.end(), bits);
  std::fill(bits + packed.size(), bits + room, std::byte{0});
  void* dense = writer.dense(0, writer.elems());
  void* values = dense == nullptr ? scratch : dense;
  Session session(stage, out.dtype, Plane(out.shape), values, bits, room);
  const std::size_t read = session.decompress();
  const std::size_t word_bytes = *zfp_library().stream_word_bits / 8;
  if (read > padded(packed.size(), word_bytes) || packed.size() > padded(read, kMaxWordBytes)) {
    fail(Errc::CorruptData, "[unpack] zfp: {} {} took {} of {} packed bytes; they are damaged",
         to_string(out.dtype), to_string(out.shape), read, packed.size());
  }
  if (dense == nullptr) writer.scatter_bytes(0, writer.elems(), scratch);
}

}  // namespace
}  // namespace tuckfold::zfp

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"zfp(rate={x})", Ladder::Setting::Steps, 0.5, 32, 0.25},
    {"zfp(accuracy={x})", Ladder::Setting::TheBound},
};

}  // namespace

const Codec kZfp = {
    .info = {.name = "zfp",
             .summary = "blocks of 4 x 4 values by libzfp, at a rate, an accuracy or a precision",
             .params = zfp::kParams},
    .check = zfp::check,
    .layout = zfp::layout_of,
    .pack = zfp::pack_all,
    .unpack = zfp::unpack_all,
    // libzfp's own promise for finite values; it promises nothing for a rate or a precision.
    .error_bound = [](const Stage& stage) -> std::optional<double> {
      const double accuracy = stage["accuracy"];
      return accuracy != 0 ? std::optional(accuracy) : std::nullopt;
    },
    .ladders = kLadders,
};

}  // namespace tuckfold
