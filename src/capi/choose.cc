// Which codec, and how far values are off, in C.
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "capi/handles.h"
#include "choose/exact_codec.h"
#include "choose/ladders.h"
#include "container/compare.h"

using namespace tuckfold;        // NOLINT(google-build-using-namespace)
using namespace tuckfold::capi;  // NOLINT(google-build-using-namespace)

namespace {

ConstTensorView values_of(const char* what, const tuckfold_tensor* tensor) {
  const TensorView view = view_of(what, tensor);
  if (view.device != Device::Cpu) {
    fail(Errc::Unsupported, "[{}] values must be on the CPU; copy them there", what);
  }
  if (view.strides != row_major_strides(view.shape)) {
    invalid("[{}] values must be row-major; copy them first", what);
  }
  if (view.data == nullptr && view.shape.elems() > 0) invalid("[{}] the tensor has no data", what);
  return view;
}

// The rung's JSON, or nothing if the codec does not suit the part.
std::string rung_json(const CodecSpec& spec, const ConstTensorView& part, bool for_the_rest) {
  try {
    const Layout fit = layout(spec, part.dtype, part.shape);
    if (for_the_rest && refuses_some(spec, part.dtype, part.shape)) return "";
    return fmt::format(R"({{"codec": {}, "max_bytes": {}, "fixed": {}}})",
                       json_string(spec.print()), fit.max_bytes, fit.fixed);
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument && error.code() != Errc::Unsupported) throw;
    return "";
  }
}

}  // namespace

tuckfold_status tuckfold_ladders(const tuckfold_tensor* part, int32_t target, double value,
                                 int32_t for_the_rest, const char** json) {
  return guarded([&] {
    static thread_local std::string text;
    const char** const place = &given("choose", "the place for the ladders", json);
    const ConstTensorView values = values_of("choose", part);
    if (target < TUCKFOLD_PSNR || target > TUCKFOLD_MAX_ERROR) {
      invalid("[choose] target must be TUCKFOLD_PSNR to TUCKFOLD_MAX_ERROR, 0..2, got {}", target);
    }
    std::vector<std::string> ladders;
    for (const SpecLadder& ladder :
         ladders_for(facts_of(values), {static_cast<Target::Kind>(target), value})) {
      std::vector<std::string> rungs;
      for (const CodecSpec& spec : ladder) {
        std::string rung = rung_json(spec, values, for_the_rest != 0);
        if (!rung.empty()) rungs.push_back(std::move(rung));
      }
      if (!rungs.empty()) ladders.push_back(fmt::format("[{}]", fmt::join(rungs, ", ")));
    }
    text = fmt::format("[{}]", fmt::join(ladders, ", "));
    *place = text.c_str();
  });
}

tuckfold_status tuckfold_choose_exact(const tuckfold_tensor* part, int32_t threads,
                                      const char** codec) {
  return guarded([&] {
    static thread_local std::string text;
    const char** const place = &given("choose", "the place for the codec", codec);
    const ConstTensorView values = values_of("choose", part);
    if (values.shape.rank() == 0) invalid("[choose] the first axis must be the sample, got none");
    const bool any = values.shape.elems() > 0;
    text = (any ? choose_exact(values, threads) : CodecSpec::parse("zstd")).print();
    *place = text.c_str();
  });
}

tuckfold_status tuckfold_compare(const tuckfold_tensor* original, const tuckfold_tensor* result,
                                 tuckfold_difference* difference) {
  return guarded([&] {
    tuckfold_difference& to = given("compare", "the place for the difference", difference);
    const ConstTensorView a = values_of("compare", original), b = values_of("compare", result);
    if (a.shape != b.shape) {
      invalid("[compare] the shapes must be equal, got {} and {}", to_string(a.shape),
              to_string(b.shape));
    }
    const Sums sums = compare_values(a.dtype, a.data, b.dtype, b.data, a.shape.elems());
    to = {.low = sums.low,
          .high = sums.high,
          .mean_square = sums.mean_square(),
          .max_error = sums.lost > 0 ? std::numeric_limits<double>::infinity() : sums.max_error,
          .psnr_db = sums.psnr_db(sums.range()),
          .finite = sums.finite,
          .lost = sums.lost,
          .changed = sums.changed};
  });
}
