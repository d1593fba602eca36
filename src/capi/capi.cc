// The C API: converts arguments to views and exceptions to statuses. It throws nothing.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "capi/handles.h"
#include "capi/json.h"
#include "codec/then/gelu.h"
#include "codec/then/normalize.h"
#include "codec/then/unpack_rows.h"
#include "tuckfold/c.h"
#include "tuckfold/codec.h"
#include "tuckfold/portable.h"
#include "tuckfold/unpack_images.h"
#include "tuckfold/unpack_then.h"
#include "tuckfold/version.h"

namespace tuckfold::capi {

thread_local LastError t_last;

static_assert(TUCKFOLD_MAX_RANK == Shape::kMaxRank);
static_assert(TUCKFOLD_CPU == static_cast<int>(Device::Cpu) &&
              TUCKFOLD_CUDA == static_cast<int>(Device::Cuda));
static_assert(TUCKFOLD_REFUSED == CudaOptions::kRefused);

DType dtype_of(const char* what, std::int32_t dtype) {
  if (dtype < 0 || dtype >= static_cast<std::int32_t>(kDTypes.size())) {
    invalid("[{}] dtype must be TUCKFOLD_F32 to TUCKFOLD_BOOL, 0..{}, got {}", what,
            kDTypes.size() - 1, dtype);
  }
  return static_cast<DType>(dtype);
}

namespace {

Shape axes_of(const char* what, const char* name, std::int32_t rank, const std::int64_t* axes) {
  if (rank < 0 || rank > TUCKFOLD_MAX_RANK) {
    invalid("[{}] rank must be 0..{}, got {}", what, +TUCKFOLD_MAX_RANK, rank);
  }
  if (rank > 0) given(what, name, axes);
  return Shape(std::span(axes, static_cast<std::size_t>(rank)));
}

}  // namespace

TensorView view_of(const char* what, const tuckfold_tensor* tensor) {
  const tuckfold_tensor& t = given(what, "the tensor", tensor);
  const DType dtype = dtype_of(what, t.dtype);
  const Shape shape = axes_of(what, "shape", t.rank, t.shape);
  if (t.device != TUCKFOLD_CPU && t.device != TUCKFOLD_CUDA) {
    invalid("[{}] device must be TUCKFOLD_CPU or TUCKFOLD_CUDA, got {}", what, t.device);
  }
  const auto device = static_cast<Device>(t.device);
  if (t.strides == nullptr) return {t.data, dtype, shape, device};
  return {t.data, dtype, shape, axes_of(what, "strides", t.rank, t.strides), device};
}

tuckfold_options options_of(const char* what, const tuckfold_options* given_options) {
  tuckfold_options options{};
  if (given_options == nullptr) return options;
  const std::size_t bytes = given_options->struct_bytes;
  if (bytes < sizeof bytes) {
    invalid("[{}] struct_bytes must be sizeof(tuckfold_options) = {}, got {}", what, sizeof options,
            bytes);
  }
  std::memcpy(&options, given_options, std::min(bytes, sizeof options));
  const char* first = reinterpret_cast<const char*>(given_options);
  if (bytes > sizeof options &&
      std::any_of(first + sizeof options, first + bytes, [](char c) { return c != 0; })) {
    fail(Errc::Unsupported, "[{}] the options have fields that tuckfold {} does not know", what,
         version());
  }
  return options;
}

namespace {

RunOptions run_options(const tuckfold_options& options) {
  return {.threads = options.threads,
          .seed = options.seed,
          .workspace = {static_cast<std::byte*>(options.workspace),
                        options.workspace == nullptr ? 0 : options.workspace_bytes},
          .cuda = {.stream = options.stream,
                   .device_result = options.device_result,
                   .device_seed = options.device_seed}};
}

void copy_layout(const Layout& from, tuckfold_layout& to) {
  to.max_bytes = from.max_bytes;
  to.workspace_bytes = from.workspace_bytes;
  to.fixed = from.fixed ? 1 : 0;
  to.dtype = static_cast<int32_t>(from.dtype);
  to.rank = static_cast<int32_t>(from.shape.rank());
  std::copy(from.shape.begin(), from.shape.end(), to.shape);
}

void release(tuckfold_plan* plan) {
  if (plan != nullptr && plan->references.fetch_sub(1) == 1) delete plan;
}
tuckfold_plan* shared(tuckfold_plan* plan) {
  plan->references.fetch_add(1);
  return plan;
}

// The plans that a thread used last. Programs use a few again and again. A cache for each thread
// needs no lock, and a plan that it drops stays alive while others refer to it.
class PlanCache {
 public:
  ~PlanCache() { clear(); }

  tuckfold_plan* find_or_make(std::string_view spec, DType dtype, const Shape& shape) {
    key_.assign(spec);
    key_.push_back('\0');
    key_.push_back(static_cast<char>(dtype));
    key_.append(reinterpret_cast<const char*>(shape.begin()), shape.rank() * sizeof(std::int64_t));
    const auto found = plans_.find(key_);
    if (found != plans_.end()) return shared(found->second);
    auto made = std::unique_ptr<tuckfold_plan>(
        new tuckfold_plan{.plan = Plan(CodecSpec::parse(spec), dtype, shape)});
    copy_layout(made->plan.layout(), made->layout);
    constexpr std::size_t kMostPlans = 1024;
    if (plans_.size() >= kMostPlans) clear();
    return shared(plans_.emplace(key_, made.release()).first->second);
  }

 private:
  void clear() {
    for (const auto& [key, plan] : plans_) release(plan);
    plans_.clear();
  }

  std::string key_;  // kept for its memory
  std::unordered_map<std::string, tuckfold_plan*> plans_;
};
thread_local PlanCache t_plans;

std::vector<Plan> plans_of(const char* what, const tuckfold_plan* const* plans, std::size_t count) {
  given(what, "the plans", plans);
  std::vector<Plan> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) all.push_back(given(what, "a plan", plans[i]).plan);
  return all;
}

RowNormalization rows_of(const char* what, const tuckfold_row_normalization* how) {
  const tuckfold_row_normalization& n = given(what, "the numbers of rows", how);
  return {
      .mean = n.mean, .invstd = n.invstd, .weight = n.weight, .bias = n.bias, .length = n.length};
}

void copy_matrix(const Matrix& from, float* to) {
  if (to != nullptr) std::copy(from.values.begin(), from.values.end(), to);
}

}  // namespace
}  // namespace tuckfold::capi

using namespace tuckfold;        // NOLINT(google-build-using-namespace)
using namespace tuckfold::capi;  // NOLINT(google-build-using-namespace)

const char* tuckfold_last_error(void) { return t_last.text; }
tuckfold_status tuckfold_last_status(void) { return t_last.status; }
tuckfold_status tuckfold_set_error(tuckfold_status status, const char* message) {
  return t_last.set(status, message == nullptr ? "" : message);
}
void tuckfold_clear_error(void) { t_last.set(TUCKFOLD_OK, ""); }

tuckfold_status tuckfold_spec_parse(const char* text, tuckfold_spec** spec) {
  return guarded([&] {
    tuckfold_spec*& to = given("spec", "the place for the spec", spec);
    to = nullptr;
    auto made = std::make_unique<tuckfold_spec>();
    made->spec = CodecSpec::parse(&given("spec", "the text", text));
    made->text = made->spec.print();
    made->json = spec_json(made->spec);
    to = made.release();
  });
}

void tuckfold_spec_free(tuckfold_spec* spec) { delete spec; }

const char* tuckfold_spec_text(const tuckfold_spec* spec) {
  return spec == nullptr ? "" : spec->text.c_str();
}

const char* tuckfold_spec_json(const tuckfold_spec* spec) {
  return spec == nullptr ? "[]" : spec->json.c_str();
}

int32_t tuckfold_spec_equal(const tuckfold_spec* a, const tuckfold_spec* b) {
  return a == b || (a != nullptr && b != nullptr && a->spec == b->spec) ? 1 : 0;
}

const char* tuckfold_codecs_json(void) {
  static const std::string json = codecs_json();
  return json.c_str();
}

tuckfold_status tuckfold_plan_get(const char* spec, int32_t dtype, int32_t rank,
                                  const int64_t* shape, tuckfold_plan** plan) {
  return guarded([&] {
    tuckfold_plan*& to = given("plan", "the place for the plan", plan);
    to = nullptr;
    to = t_plans.find_or_make(&given("plan", "the spec", spec), dtype_of("plan", dtype),
                              axes_of("plan", "shape", rank, shape));
  });
}

void tuckfold_plan_release(tuckfold_plan* plan) { release(plan); }

const tuckfold_layout* tuckfold_plan_layout(const tuckfold_plan* plan) {
  return plan == nullptr ? nullptr : &plan->layout;
}

tuckfold_status tuckfold_pack(const tuckfold_plan* plan, const tuckfold_tensor* in, void* out,
                              size_t out_bytes, const tuckfold_options* options, size_t* written) {
  return guarded([&] {
    const tuckfold_options run = options_of("pack", options);
    const UseExecutor on({run.executor, run.executor_data});
    const std::size_t room = out == nullptr ? 0 : out_bytes;
    const std::size_t bytes =
        given("pack", "the plan", plan)
            .plan.pack(view_of("pack", in), {static_cast<std::byte*>(out), room}, run_options(run));
    given("pack", "the place for the bytes written", written) = bytes;
  });
}

tuckfold_status tuckfold_unpack(const tuckfold_plan* plan, const void* packed, size_t packed_bytes,
                                const tuckfold_tensor* out, const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("unpack", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (packed_bytes > 0) given("unpack", "the packed bytes", static_cast<const char*>(packed));
    given("unpack", "the plan", plan)
        .plan.unpack({static_cast<const std::byte*>(packed), packed_bytes}, view_of("unpack", out),
                     run_options(run));
  });
}

tuckfold_status tuckfold_unpack_then(const tuckfold_plan* plan, const void* packed,
                                     size_t packed_bytes, const tuckfold_tensor* out,
                                     const tuckfold_then* then, const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("unpack_then", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (packed_bytes > 0) {
      given("unpack_then", "the packed bytes", static_cast<const char*>(packed));
    }
    const tuckfold_then& t = given("unpack_then", "what follows", then);
    unpack_then(given("unpack_then", "the plan", plan).plan,
                {static_cast<const std::byte*>(packed), packed_bytes}, view_of("unpack_then", out),
                {.scale = t.scale,
                 .shift = t.shift,
                 .channels = t.channels,
                 .inner = t.inner,
                 .relu = t.relu != 0,
                 .add = t.add,
                 .packed_add = static_cast<const std::byte*>(t.packed_add),
                 .add_scale = t.add_scale,
                 .add_shift = t.add_shift,
                 .gate = static_cast<const std::byte*>(t.gate)},
                run_options(run));
  });
}

tuckfold_status tuckfold_normalize(const tuckfold_tensor* x, const tuckfold_tensor* add,
                                   const tuckfold_tensor* out, const tuckfold_normalization* how,
                                   const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("normalize", options);
    const UseExecutor on({run.executor, run.executor_data});
    const tuckfold_normalization& n = given("normalize", "the numbers of channels", how);
    const ConstTensorView in = view_of("normalize", x);
    const std::optional<ConstTensorView> other =
        add == nullptr ? std::nullopt : std::optional<ConstTensorView>(view_of("normalize", add));
    normalize(in, other ? &*other : nullptr, view_of("normalize", out),
              {.mean = n.mean,
               .invstd = n.invstd,
               .weight = n.weight,
               .bias = n.bias,
               .channels = n.channels,
               .inner = n.inner,
               .relu = n.relu != 0},
              run_options(run));
  });
}

tuckfold_status tuckfold_normalize_rows(const tuckfold_tensor* x, const tuckfold_tensor* out,
                                        const tuckfold_row_normalization* how,
                                        const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("normalize", options);
    const UseExecutor on({run.executor, run.executor_data});
    normalize_rows(ConstTensorView(view_of("normalize", x)), view_of("normalize", out),
                   rows_of("normalize", how), run_options(run));
  });
}

tuckfold_status tuckfold_unpack_rows(const tuckfold_plan* plan, const void* packed,
                                     size_t packed_bytes, const tuckfold_tensor* out,
                                     const tuckfold_row_normalization* how,
                                     const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("unpack_rows", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (packed_bytes > 0) {
      given("unpack_rows", "the packed bytes", static_cast<const char*>(packed));
    }
    unpack_rows(given("unpack_rows", "the plan", plan).plan,
                {static_cast<const std::byte*>(packed), packed_bytes}, view_of("unpack_rows", out),
                rows_of("unpack_rows", how), run_options(run));
  });
}

tuckfold_status tuckfold_unpack_gelu(const tuckfold_plan* plan, const void* packed,
                                     size_t packed_bytes, const tuckfold_tensor* out,
                                     const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("unpack_gelu", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (packed_bytes > 0) {
      given("unpack_gelu", "the packed bytes", static_cast<const char*>(packed));
    }
    unpack_gelu(given("unpack_gelu", "the plan", plan).plan,
                {static_cast<const std::byte*>(packed), packed_bytes}, view_of("unpack_gelu", out),
                run_options(run));
  });
}

tuckfold_status tuckfold_unpack_images(const tuckfold_plan* plan, const void* packed,
                                       size_t packed_bytes, const tuckfold_window* windows,
                                       const int32_t* places, const tuckfold_image_options* images,
                                       const tuckfold_tensor* out,
                                       const tuckfold_options* options) {
  static_assert(sizeof(tuckfold_window) == sizeof(Window) &&
                offsetof(tuckfold_window, mirrored) == offsetof(Window, mirrored));
  return guarded([&] {
    const tuckfold_options run = options_of("unpack_images", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (packed_bytes > 0) {
      given("unpack_images", "the packed bytes", static_cast<const char*>(packed));
    }
    const Plan& made = given("unpack_images", "the plan", plan).plan;
    const tuckfold_image_options& how = given("unpack_images", "the options of images", images);
    if (how.struct_bytes != sizeof(tuckfold_image_options)) {
      invalid("[unpack_images] struct_bytes must be {}, got {}", sizeof(tuckfold_image_options),
              how.struct_bytes);
    }
    const TensorView view = view_of("unpack_images", out);
    if ((how.scale != nullptr || how.add != nullptr) && view.shape.rank() == 4 &&
        !std::cmp_equal(how.channels, view.shape[1])) {
      invalid("[unpack_images] images have {} channels, got scale or add of {}", view.shape[1],
              how.channels);
    }
    unpack_images(made, {static_cast<const std::byte*>(packed), packed_bytes},
                  {.windows = reinterpret_cast<const Window*>(windows),
                   .places = places,
                   .scale = how.scale,
                   .add = how.add,
                   .channels_last = how.channels_last != 0},
                  view, run_options(run));
  });
}

size_t tuckfold_unpack_images_bytes(const tuckfold_plan* plan, int32_t device) {
  if (plan == nullptr) return 0;
  return unpack_images_workspace(plan->plan, device == TUCKFOLD_CUDA ? Device::Cuda : Device::Cpu);
}

tuckfold_status tuckfold_pack_many(const tuckfold_plan* const* plans, size_t count,
                                   const tuckfold_tensor* in, void* const* out,
                                   const size_t* out_bytes, const tuckfold_options* options,
                                   size_t* written) {
  return guarded([&] {
    const tuckfold_options run = options_of("pack_many", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (count == 0) return;
    const std::vector<Plan> all = plans_of("pack_many", plans, count);
    given("pack_many", "the tensors", in);
    given("pack_many", "the outputs", out);
    given("pack_many", "their sizes", out_bytes);
    given("pack_many", "the place for the bytes written", written);
    std::vector<ConstTensorView> views;
    std::vector<std::span<std::byte>> rooms;
    views.reserve(count);
    rooms.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      views.emplace_back(view_of("pack_many", in + i));
      rooms.emplace_back(static_cast<std::byte*>(out[i]), out[i] == nullptr ? 0 : out_bytes[i]);
    }
    pack_many(all, views, rooms, {written, count}, run_options(run));
  });
}

tuckfold_status tuckfold_unpack_many(const tuckfold_plan* const* plans, size_t count,
                                     const void* const* packed, const size_t* packed_bytes,
                                     const tuckfold_tensor* out, const tuckfold_options* options) {
  return guarded([&] {
    const tuckfold_options run = options_of("unpack_many", options);
    const UseExecutor on({run.executor, run.executor_data});
    if (count == 0) return;
    const std::vector<Plan> all = plans_of("unpack_many", plans, count);
    given("unpack_many", "the packed bytes", packed);
    given("unpack_many", "their sizes", packed_bytes);
    given("unpack_many", "the tensors", out);
    std::vector<TensorView> views;
    std::vector<std::span<const std::byte>> bytes;
    views.reserve(count);
    bytes.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      views.push_back(view_of("unpack_many", out + i));
      const auto* from = static_cast<const std::byte*>(packed[i]);
      if (packed_bytes[i] > 0) given("unpack_many", "the packed bytes", from);
      bytes.emplace_back(from, packed_bytes[i]);
    }
    unpack_many(all, bytes, views, run_options(run));
  });
}

tuckfold_status tuckfold_matmul_form(const tuckfold_spec* spec, int64_t rows, int64_t cols,
                                     tuckfold_matmul_sizes* sizes, float* lhs, float* rhs,
                                     float* back_lhs, float* back_rhs) {
  return guarded([&] {
    const MatmulForm form = matmul_form(given("matmul_form", "the spec", spec).spec, rows, cols);
    given("matmul_form", "the place for the sizes", sizes) = {
        form.tiles, form.tile_rows, form.tile_cols, form.lhs.rows, form.rhs.cols};
    copy_matrix(form.lhs, lhs);
    copy_matrix(form.rhs, rhs);
    copy_matrix(form.back_lhs, back_lhs);
    copy_matrix(form.back_rhs, back_rhs);
  });
}

const char* tuckfold_version(void) {
  static const std::string text = version();
  return text.c_str();
}

const char* tuckfold_cpu_target(void) {
  static const std::string text = [] {
    try {
      return cpu_target();
    } catch (const Error&) {
      return std::string("unknown");  // TUCKFOLD_CPU names none; packing says so
    }
  }();
  return text.c_str();
}

int32_t tuckfold_has_cuda(void) { return has_cuda() ? 1 : 0; }
int32_t tuckfold_cuda_devices(void) { return cuda_devices(); }
