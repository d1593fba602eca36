// The codecs as operators of PyTorch, on its stable ABI alone: one binary for torch 2.10 and later.
//
//   torch.ops.tuckfold.pack(x, "dct_chop(keep=4)", 0)                      # uint8, one axis
//   torch.ops.tuckfold.unpack(packed, "dct_chop(keep=4)", shape, dtype)
//
// The stable ABI has neither fake kernels nor autograd; both are in python/tuckfold/torch/.
#include <pthread.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tuckfold/tuckfold.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// ---- errors, dtypes, specs ----------------------------------------------------------------------

// Python sees ValueError for the one and RuntimeError for the other; tuckfold.torch asks the C API
// for the exact class.
[[noreturn]] void raise(tuckfold_status status) {
  const std::string message = tuckfold_last_error();
  if (status == TUCKFOLD_INVALID_ARGUMENT || status == TUCKFOLD_CORRUPT_DATA) {
    throw std::invalid_argument(message);
  }
  throw std::runtime_error(message);
}

void check(tuckfold_status status) {
  if (status != TUCKFOLD_OK) raise(status);
}

struct DTypeRow {
  std::int32_t ours;
  ScalarType theirs;
};
constexpr DTypeRow kDTypes[] = {
    {TUCKFOLD_F32, ScalarType::Float},     {TUCKFOLD_F16, ScalarType::Half},
    {TUCKFOLD_BF16, ScalarType::BFloat16}, {TUCKFOLD_F64, ScalarType::Double},
    {TUCKFOLD_U8, ScalarType::Byte},       {TUCKFOLD_I32, ScalarType::Int},
    {TUCKFOLD_I64, ScalarType::Long},
};

std::int32_t dtype_of(const char* what, ScalarType type) {
  for (const DTypeRow& row : kDTypes) {
    if (row.theirs == type) return row.ours;
  }
  const char* hint = type == ScalarType::Bool ? "; pack the tensor's view(torch.uint8)" : "";
  throw std::invalid_argument(
      std::string("[") + what +
      "] dtype must be float32, float16, bfloat16, float64, uint8, int32 or "
      "int64" +
      hint);
}

ScalarType torch_dtype(std::int32_t dtype) { return kDTypes[dtype].theirs; }

using Spec = std::unique_ptr<tuckfold_spec, decltype(&tuckfold_spec_free)>;

// Looks texts up without making strings of them.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};

// Programs use a handful of specs, over and over. One cache a thread needs no lock.
const tuckfold_spec* spec_of(std::string_view text) {
  constexpr std::size_t kMaxCached = 64;
  thread_local std::unordered_map<std::string, Spec, TextHash, std::equal_to<>> cache;
  const auto found = cache.find(text);
  if (found != cache.end()) return found->second.get();
  if (cache.size() >= kMaxCached) cache.clear();
  if (text.find('\0') != std::string_view::npos) {
    throw std::invalid_argument("[codec] a spec has no NUL characters");
  }
  tuckfold_spec* spec = nullptr;
  std::string key(text);
  check(tuckfold_spec_parse(key.c_str(), &spec));
  return cache.emplace(std::move(key), Spec(spec, tuckfold_spec_free)).first->second.get();
}

// ---- tensors ------------------------------------------------------------------------------------

// A view of a tensor with strides of its own; the tensor must outlive it.
tuckfold_tensor view_of(const char* what, const Tensor& tensor, void* data) {
  return {.data = data,
          .dtype = dtype_of(what, tensor.scalar_type()),
          .rank = static_cast<std::int32_t>(tensor.dim()),
          .shape = tensor.sizes().data(),
          .strides = tensor.strides().data(),
          .device = TUCKFOLD_CPU};
}

Tensor empty(std::span<const std::int64_t> shape, ScalarType dtype) {
  std::int64_t strides[TUCKFOLD_MAX_RANK], step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;
       step *= std::max<std::int64_t>(shape[axis], 1)) {
    strides[axis] = step;
  }
  AtenTensorHandle handle = nullptr;
  const auto type = static_cast<std::int32_t>(torch::stable::detail::from(dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()),
                                                  shape.data(), strides, type,
                                                  aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

tuckfold_layout layout_of(const tuckfold_spec* spec, const tuckfold_tensor& view) {
  tuckfold_layout fit;
  check(tuckfold_layout_of(spec, view.dtype, view.rank, view.shape, &fit));
  return fit;
}

// torch's own threads (libgomp's) are gone in a forked child, and waiting for them hangs.
std::atomic<bool> g_forked{false};
[[maybe_unused]] const int kAtFork = pthread_atfork(nullptr, nullptr, [] { g_forked = true; });

// Loops run on torch's threads, as many as torch.set_num_threads says; in a forked child, a worker
// of a data loader say, on as many of the library's own, which survive.
tuckfold_options options_of(std::int64_t seed) {
  tuckfold_options options{.struct_bytes = sizeof options,
                           .seed = static_cast<std::uint64_t>(seed)};
  options.threads = static_cast<std::int32_t>(torch::stable::get_num_threads());
  if (g_forked) return options;
  options.executor = [](void*, std::int64_t parts, std::int32_t, tuckfold_range_body body,
                        void* context) {
    torch::stable::parallel_for(
        0, parts, 1, [&](std::int64_t begin, std::int64_t end) { body(context, begin, end); });
  };
  return options;
}

std::size_t pack_into(const tuckfold_spec* spec, const tuckfold_tensor& in, const Tensor& out,
                      std::size_t room, std::int64_t seed) {
  std::size_t written = 0;
  const tuckfold_options options = options_of(seed);
  check(tuckfold_pack(spec, &in, out.mutable_data_ptr(), room, &options, &written));
  return written;
}

void unpack_from(const char* what, const Tensor& packed, const tuckfold_spec* spec,
                 const Tensor& out) {
  if (!packed.is_contiguous()) {
    throw std::invalid_argument(std::string("[") + what +
                                "] packed bytes must lie side by side; call contiguous() first");
  }
  const tuckfold_options options = options_of(0);
  const tuckfold_tensor view = view_of(what, out, out.mutable_data_ptr());
  const auto bytes = static_cast<std::size_t>(packed.numel()) * packed.element_size();
  check(tuckfold_unpack(spec, packed.const_data_ptr(), bytes, &view, &options));
}

void check_bytes(const Tensor& packed) {
  if (packed.scalar_type() != ScalarType::Byte) {
    throw std::invalid_argument("[unpack] packed bytes must be of uint8; view them as such");
  }
}

// ---- arguments ----------------------------------------------------------------------------------

// torch 2.11's own conversion of a str leaks it (new std::string, never deleted), so arguments are
// taken from the stack here.
class Text {
 public:
  explicit Text(StableIValue value) : handle_(torch::stable::detail::to<StringHandle>(value)) {}
  ~Text() { torch_delete_string(handle_); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string_view view() const {
    const char* data = nullptr;
    std::size_t length = 0;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle_, &data));
    TORCH_ERROR_CODE_CHECK(torch_string_length(handle_, &length));
    return {data, length};
  }

 private:
  StringHandle handle_;
};

struct Axes {
  static constexpr std::int64_t kSmallElems = 1 << 20;

  explicit Axes(StableIValue value) {
    const auto list = torch::stable::detail::to<StableListHandle>(value);
    const std::unique_ptr<StableListOpaque, AOTITorchError (*)(StableListHandle)> owner(
        list, torch_delete_list);
    std::size_t count = 0;
    TORCH_ERROR_CODE_CHECK(torch_list_size(list, &count));
    if (count > TUCKFOLD_MAX_RANK) {
      throw std::invalid_argument("[unpack] a tensor has at most 64 axes, got " +
                                  std::to_string(count));
    }
    rank = static_cast<std::int32_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      StableIValue length = 0;
      TORCH_ERROR_CODE_CHECK(torch_list_get_item(list, i, &length));
      lengths[i] = torch::stable::detail::to<std::int64_t>(length);
    }
  }
  // Whether a tensor of that shape is one, and its memory not worth a thought.
  bool small() const {
    std::int64_t elems = 1;
    for (const std::int64_t length : all()) {
      if (length < 0 || length > kSmallElems) return false;
      elems *= length;
      if (elems > kSmallElems) return false;
    }
    return true;
  }
  std::span<const std::int64_t> all() const { return {lengths, static_cast<std::size_t>(rank)}; }

  std::int32_t rank = 0;
  std::int64_t lengths[TUCKFOLD_MAX_RANK];
};

// ---- the operators ------------------------------------------------------------------------------

Tensor pack(const Tensor& x, std::string_view text, std::int64_t seed) {
  const tuckfold_spec* spec = spec_of(text);
  const tuckfold_tensor in = view_of("pack", x, const_cast<void*>(x.const_data_ptr()));
  const tuckfold_layout fit = layout_of(spec, in);
  const auto room = static_cast<std::int64_t>(fit.max_bytes);
  Tensor out = empty({&room, 1}, ScalarType::Byte);
  const auto written = static_cast<std::int64_t>(pack_into(spec, in, out, fit.max_bytes, seed));
  if (written == room) return out;
  // A view of a few bytes would keep all the room for the worst case.
  return torch::stable::clone(torch::stable::narrow(out, 0, 0, written));
}

// Refuses a shape that the packed bytes cannot be of before memory is taken for it.
void check_size(const tuckfold_spec* spec, const Tensor& packed, const Axes& shape,
                std::int32_t dtype) {
  alignas(8) static char nowhere[8];  // never written: unpack looks at the size first
  const tuckfold_tensor out = {
      .data = nowhere, .dtype = dtype, .rank = shape.rank, .shape = shape.lengths};
  const tuckfold_layout fit = layout_of(spec, out);
  const auto bytes = static_cast<std::size_t>(packed.numel());
  if (bytes > fit.max_bytes || (fit.fixed == 1 && bytes != fit.max_bytes)) {
    check(tuckfold_unpack(spec, packed.const_data_ptr(), bytes, &out, nullptr));
  }
}

Tensor unpack(const Tensor& packed, std::string_view text, const Axes& shape, ScalarType dtype) {
  check_bytes(packed);
  const tuckfold_spec* spec = spec_of(text);
  if (!shape.small()) check_size(spec, packed, shape, dtype_of("unpack", dtype));
  Tensor out = empty(shape.all(), dtype);
  unpack_from("unpack", packed, spec, out);
  return out;
}

void unpack_into(const Tensor& packed, std::string_view text, const Tensor& out) {
  check_bytes(packed);
  unpack_from("unpack", packed, spec_of(text), out);
}

// The packed bytes as the tensor that Layout describes: for dct_chop, the coefficients.
Tensor compress(const Tensor& x, std::string_view text) {
  const tuckfold_spec* spec = spec_of(text);
  const tuckfold_tensor in = view_of("compress", x, const_cast<void*>(x.const_data_ptr()));
  const tuckfold_layout fit = layout_of(spec, in);
  if (fit.fixed == 0) {
    throw std::invalid_argument("[compress] needs a codec of a fixed size; use pack, got " +
                                std::string(text));
  }
  Tensor out = empty({fit.shape, static_cast<std::size_t>(fit.rank)}, torch_dtype(fit.dtype));
  pack_into(spec, in, out, fit.max_bytes, 0);
  return out;
}

Tensor decompress(const Tensor& coefs, std::string_view text, const Axes& shape, ScalarType dtype) {
  const tuckfold_spec* spec = spec_of(text);
  tuckfold_tensor view{};
  view.dtype = dtype_of("decompress", dtype);
  view.rank = shape.rank;
  view.shape = shape.lengths;
  const tuckfold_layout fit = layout_of(spec, view);
  if (dtype_of("decompress", coefs.scalar_type()) != fit.dtype) {
    throw std::invalid_argument("[decompress] the tensor is not of the dtype that compress gives");
  }
  Tensor out = empty(shape.all(), dtype);
  unpack_from("decompress", coefs, spec, out);
  return out;
}

// ---- registration -------------------------------------------------------------------------------

using torch::stable::detail::from;
using torch::stable::detail::to;

// What torch calls: arguments stand in the order of the schema, and are this function's to free.
void boxed_pack(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const auto x = to<Tensor>(stack[0]);
  const Text spec(stack[1]);
  stack[0] = from(pack(x, spec.view(), to<std::int64_t>(stack[2])));
}

void boxed_unpack(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const auto packed = to<Tensor>(stack[0]);
  const Text spec(stack[1]);
  const Axes shape(stack[2]);
  stack[0] = from(unpack(packed, spec.view(), shape, to<ScalarType>(stack[3])));
}

void boxed_unpack_into(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const auto packed = to<Tensor>(stack[0]);
  const Text spec(stack[1]);
  const auto out = to<Tensor>(stack[2]);
  unpack_into(packed, spec.view(), out);
}

void boxed_compress(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const auto x = to<Tensor>(stack[0]);
  const Text spec(stack[1]);
  stack[0] = from(compress(x, spec.view()));
}

void boxed_decompress(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const auto coefs = to<Tensor>(stack[0]);
  const Text spec(stack[1]);
  const Axes shape(stack[2]);
  stack[0] = from(decompress(coefs, spec.view(), shape, to<ScalarType>(stack[3])));
}

}  // namespace

STABLE_TORCH_LIBRARY(tuckfold, library) {
  library.def("pack(Tensor x, str spec, int seed=0) -> Tensor");
  library.def("unpack(Tensor packed, str spec, int[] shape, ScalarType dtype) -> Tensor");
  library.def("unpack_into(Tensor packed, str spec, Tensor(a!) out) -> ()");
  library.def("compress(Tensor x, str spec) -> Tensor");
  library.def("decompress(Tensor coefs, str spec, int[] shape, ScalarType dtype) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(tuckfold, CPU, library) {
  library.impl("pack", boxed_pack);
  library.impl("unpack", boxed_unpack);
  library.impl("unpack_into", boxed_unpack_into);
  library.impl("compress", boxed_compress);
  library.impl("decompress", boxed_decompress);
}
