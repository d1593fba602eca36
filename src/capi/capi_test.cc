// The C API from C++: the same bytes as the C++ one, and every mistake a status with a message.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "capi/json.h"
#include "tuckfold/c.h"
#include "tuckfold/codec.h"
#include "tuckfold/portable.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using testing::Test;
using SpecPtr = std::unique_ptr<tuckfold_spec, decltype(&tuckfold_spec_free)>;

SpecPtr spec_of(const char* text) {
  tuckfold_spec* spec = nullptr;
  EXPECT_EQ(tuckfold_spec_parse(text, &spec), TUCKFOLD_OK) << tuckfold_last_error();
  return {spec, tuckfold_spec_free};
}

using PlanPtr = std::unique_ptr<tuckfold_plan, decltype(&tuckfold_plan_release)>;

// For f32 of kShape, or another shape.
constexpr std::int64_t kShape[] = {3, 64, 64};
PlanPtr plan_of(const char* text, std::span<const std::int64_t> shape = kShape) {
  tuckfold_plan* plan = nullptr;
  EXPECT_EQ(tuckfold_plan_get(text, TUCKFOLD_F32, static_cast<std::int32_t>(shape.size()),
                              shape.data(), &plan),
            TUCKFOLD_OK)
      << tuckfold_last_error();
  return {plan, tuckfold_plan_release};
}

std::string last_error() { return tuckfold_last_error(); }

// A ramp of kShape, its view, and room for what packing gives.
struct Ramp {
  Ramp() : values(3 * 64 * 64) {
    std::iota(values.begin(), values.end(), 0.0F);
    for (float& value : values) value /= static_cast<float>(values.size());
  }
  tuckfold_tensor view() {
    return {.data = values.data(), .dtype = TUCKFOLD_F32, .rank = 3, .shape = kShape};
  }
  std::vector<float> values;
};

std::vector<std::byte> packed_by_c(const tuckfold_plan* plan, Ramp& ramp,
                                   const tuckfold_options* options = nullptr) {
  std::vector<std::byte> out(tuckfold_plan_layout(plan)->max_bytes);
  const tuckfold_tensor in = ramp.view();
  std::size_t bytes = 0;
  EXPECT_EQ(tuckfold_pack(plan, &in, out.data(), out.size(), options, &bytes), TUCKFOLD_OK)
      << tuckfold_last_error();
  out.resize(bytes);
  return out;
}

constexpr const char* kSpecs[] = {"raw",
                                  "dct_chop(keep=4)",
                                  "dct_quant(rate=2)",
                                  "block_quant(bits=4)",
                                  "dct_chop(keep=4) | block_quant(bits=8)",
                                  "bounded(abs=0.001)",
                                  "bounded(abs=0.001) | zstd"};

TEST(CApi, PacksTheBytesOfTheCxxApi) {
  for (const char* text : kSpecs) {
    Ramp ramp;
    const PlanPtr plan = plan_of(text);
    const CodecSpec same = CodecSpec::parse(text);
    const tuckfold_options options{.struct_bytes = sizeof options, .seed = 7, .threads = 2};
    const std::vector<std::byte> packed = packed_by_c(plan.get(), ramp, &options);
    const Shape shape{3, 64, 64};
    std::vector<std::byte> expected(layout(same, DType::F32, shape).max_bytes);
    expected.resize(
        pack(same, {ramp.values.data(), DType::F32, shape}, expected, {.threads = 1, .seed = 7}));
    EXPECT_EQ(packed, expected) << text;

    std::vector<float> by_c(ramp.values.size()), by_cxx(ramp.values.size());
    tuckfold_tensor out = ramp.view();
    out.data = by_c.data();
    ASSERT_EQ(tuckfold_unpack(plan.get(), packed.data(), packed.size(), &out, nullptr),
              TUCKFOLD_OK);
    unpack(same, expected, {by_cxx.data(), DType::F32, shape});
    EXPECT_EQ(by_c, by_cxx) << text;
  }
}

TEST(CApi, ManyTensorsHaveTheBytesOfEachAlone) {
  const PlanPtr plan = plan_of("block_quant(bits=2, round=stochastic)");
  Ramp a, b;
  const tuckfold_tensor in[] = {a.view(), b.view()};
  const tuckfold_plan* const plans[] = {plan.get(), plan.get()};
  std::vector<std::byte> first = packed_by_c(plan.get(), a), second(first.size());
  void* const out[] = {first.data(), second.data()};
  const std::size_t rooms[] = {first.size(), second.size()};
  std::size_t written[] = {0, 0};
  const tuckfold_options options{.struct_bytes = sizeof options, .seed = 8};
  ASSERT_EQ(tuckfold_pack_many(plans, 2, in, out, rooms, &options, written), TUCKFOLD_OK);
  const tuckfold_options next{.struct_bytes = sizeof next, .seed = 9};
  EXPECT_EQ(second, packed_by_c(plan.get(), b, &next));
  Ramp back_a, back_b;
  const tuckfold_tensor to[] = {back_a.view(), back_b.view()};
  const void* const packed[] = {first.data(), second.data()};
  ASSERT_EQ(tuckfold_unpack_many(plans, 2, packed, written, to, nullptr), TUCKFOLD_OK);
  EXPECT_NE(back_b.values, b.values);
  EXPECT_EQ(tuckfold_pack_many(nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr),
            TUCKFOLD_OK);
  EXPECT_EQ(tuckfold_pack_many(plans, 2, in, nullptr, rooms, nullptr, written),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_unpack_many(plans, 2, packed, nullptr, to, nullptr),
            TUCKFOLD_INVALID_ARGUMENT);
}

TEST(CApi, AnExecutorThatCutsLoopsAsItLikesGivesTheSameBytes) {
  // One part at a time, from the last to the first.
  const auto backwards = [](void* count, std::int64_t parts, std::int32_t, tuckfold_range_body body,
                            void* context) {
    *static_cast<std::int64_t*>(count) += parts;
    for (std::int64_t i = parts; i-- > 0;) body(context, i, i + 1);
  };
  std::int64_t parts = 0;
  const tuckfold_options own{
      .struct_bytes = sizeof own, .threads = 4, .executor = backwards, .executor_data = &parts};
  for (const char* text : kSpecs) {
    Ramp ramp;
    const PlanPtr plan = plan_of(text);
    EXPECT_EQ(packed_by_c(plan.get(), ramp, &own), packed_by_c(plan.get(), ramp)) << text;
  }
  EXPECT_GT(parts, 0);
}

TEST(CApi, StridesAreThoseOfTheTensor) {
  Ramp ramp;
  const std::int64_t shape[] = {64, 3}, strides[] = {-1, 4096};
  const PlanPtr plan = plan_of("raw", shape);
  const tuckfold_tensor view = {.data = ramp.values.data() + 63,
                                .dtype = TUCKFOLD_F32,
                                .rank = 2,
                                .shape = shape,
                                .strides = strides};
  std::vector<float> out(64 * 3);
  std::size_t bytes = 0;
  ASSERT_EQ(tuckfold_pack(plan.get(), &view, out.data(), 768, nullptr, &bytes), TUCKFOLD_OK);
  EXPECT_EQ(bytes, 768U);
  EXPECT_EQ(out[0], ramp.values[63]);
  EXPECT_EQ(out[4], ramp.values[62 + 4096]);
}

TEST(CApi, LayoutSaysWhatTheCxxApiSays) {
  const PlanPtr plan = plan_of("dct_chop(keep=2, coef=f16)");
  const tuckfold_layout& fit = *tuckfold_plan_layout(plan.get());
  EXPECT_EQ(fit.max_bytes, 3U * 16 * 16 * 2);
  EXPECT_EQ(fit.fixed, 1);
  EXPECT_EQ(fit.dtype, TUCKFOLD_F16);
  EXPECT_EQ(std::vector(fit.shape, fit.shape + fit.rank), (std::vector<std::int64_t>{3, 16, 16}));
  EXPECT_EQ(tuckfold_plan_layout(plan_of("zstd").get())->fixed, 0);
  EXPECT_EQ(tuckfold_plan_layout(nullptr), nullptr);
}

TEST(CApi, SpecsPrintCanonicallyAndCompare) {
  const SpecPtr spec = spec_of(" dct_chop( keep=4,block=8 ) ");
  EXPECT_STREQ(tuckfold_spec_text(spec.get()), "dct_chop(keep=4)");
  EXPECT_EQ(tuckfold_spec_equal(spec.get(), spec_of("dct_chop").get()), 1);
  EXPECT_EQ(tuckfold_spec_equal(spec.get(), spec_of("dct_chop(keep=3)").get()), 0);
  EXPECT_EQ(tuckfold_spec_equal(spec.get(), nullptr), 0);
  EXPECT_STREQ(tuckfold_spec_text(nullptr), "");
  tuckfold_spec_free(nullptr);
}

TEST(CApi, ASpecAsJsonHasEveryParameter) {
  EXPECT_STREQ(tuckfold_spec_json(spec_of("dct_chop(keep=3) | zstd").get()),
               R"([{"name": "dct_chop", "params": {"block": 8, "keep": 3, "shape": "square", )"
               R"("coef": "f32", "transform": "dct", "serialize": 1, "order": "auto"}}, )"
               R"({"name": "zstd", "params": {"level": 1}}])");
  EXPECT_EQ(capi::codecs_json(), tuckfold_codecs_json());
  const Json dtypes = Json::parse(tuckfold_dtypes_json());
  ASSERT_EQ(dtypes.items.size(), kDTypes.size());
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    const Json& row = dtypes.items[i];
    EXPECT_EQ(row.find("name")->string, to_string(kDTypes[i]));
    EXPECT_EQ(row.find("code")->whole(), static_cast<std::int64_t>(i));
    EXPECT_EQ(row.find("bytes")->whole(), static_cast<std::int64_t>(size_bytes(kDTypes[i])));
  }
  EXPECT_EQ(dtypes.items[TUCKFOLD_U16].find("kind")->string, "unsigned");
  EXPECT_EQ(dtypes.items[TUCKFOLD_I8].find("kind")->string, "signed");
  EXPECT_EQ(dtypes.items[TUCKFOLD_BF16].find("kind")->string, "float");
  EXPECT_EQ(dtypes.items[TUCKFOLD_BOOL].find("kind")->string, "bool");
  for (const CodecInfo& codec : list_codecs()) {
    EXPECT_NE(std::string(tuckfold_codecs_json()).find(codec.summary), std::string::npos);
  }
}

TEST(CApi, MatricesAreThoseOfMatmulForm) {
  const SpecPtr spec = spec_of("dct_chop(keep=2)");
  tuckfold_matmul_sizes sizes{};
  ASSERT_EQ(tuckfold_matmul_form(spec.get(), 16, 8, &sizes, nullptr, nullptr, nullptr, nullptr),
            TUCKFOLD_OK);
  EXPECT_EQ(sizes.kept_rows, 4);
  EXPECT_EQ(sizes.kept_cols, 2);
  std::vector<float> lhs(4 * 16), back_rhs(2 * 8);
  ASSERT_EQ(tuckfold_matmul_form(spec.get(), 16, 8, &sizes, lhs.data(), nullptr, nullptr,
                                 back_rhs.data()),
            TUCKFOLD_OK);
  const MatmulForm form = matmul_form(CodecSpec::parse("dct_chop(keep=2)"), 16, 8);
  EXPECT_EQ(lhs, form.lhs.values);
  EXPECT_EQ(back_rhs, form.back_rhs.values);
  EXPECT_EQ(
      tuckfold_matmul_form(spec_of("raw").get(), 16, 8, &sizes, nullptr, nullptr, nullptr, nullptr),
      TUCKFOLD_INVALID_ARGUMENT);
}

TEST(CApi, MistakesAreStatusesWithMessages) {
  tuckfold_spec* none = nullptr;
  EXPECT_EQ(tuckfold_spec_parse("dct_chop(keep=9)", &none), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(last_error().find("keep must be 1..8"), std::string::npos);
  EXPECT_EQ(tuckfold_last_status(), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_spec_parse(nullptr, &none), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_spec_parse("raw", nullptr), TUCKFOLD_INVALID_ARGUMENT);

  Ramp ramp;
  const PlanPtr plan = plan_of("dct_chop(keep=4)");
  std::vector<std::byte> packed = packed_by_c(plan.get(), ramp);
  tuckfold_tensor view = ramp.view();
  EXPECT_EQ(tuckfold_unpack(plan.get(), packed.data(), packed.size() - 1, &view, nullptr),
            TUCKFOLD_CORRUPT_DATA);
  EXPECT_NE(last_error().find("packs to 12288 bytes, got 12287"), std::string::npos);
  std::size_t bytes = 0;
  const auto status_of = [&](const tuckfold_tensor& tensor) {
    return tuckfold_pack(plan.get(), &tensor, packed.data(), packed.size(), nullptr, &bytes);
  };
  for (const std::int32_t dtype : {-1, 7}) {
    view = ramp.view();
    view.dtype = dtype;
    EXPECT_EQ(status_of(view), TUCKFOLD_INVALID_ARGUMENT);
  }
  for (const std::int32_t rank : {-1, 65}) {
    view = ramp.view();
    view.rank = rank;
    EXPECT_EQ(status_of(view), TUCKFOLD_INVALID_ARGUMENT);
  }
  view = ramp.view();
  view.shape = nullptr;
  EXPECT_EQ(status_of(view), TUCKFOLD_INVALID_ARGUMENT);
  view = ramp.view();
  view.data = nullptr;
  EXPECT_EQ(status_of(view), TUCKFOLD_INVALID_ARGUMENT);
  view = ramp.view();
  if (cuda_devices() == 0) {
    view.device = TUCKFOLD_CUDA;
    EXPECT_EQ(status_of(view), TUCKFOLD_UNSUPPORTED);
  }
  view.device = 2;
  EXPECT_EQ(status_of(view), TUCKFOLD_INVALID_ARGUMENT);
  view = ramp.view();
  EXPECT_EQ(tuckfold_pack(nullptr, &view, packed.data(), packed.size(), nullptr, &bytes),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_pack(plan.get(), nullptr, packed.data(), packed.size(), nullptr, &bytes),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_pack(plan.get(), &view, nullptr, packed.size(), nullptr, &bytes),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_pack(plan.get(), &view, packed.data(), packed.size(), nullptr, nullptr),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_unpack(plan.get(), nullptr, packed.size(), &view, nullptr),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_plan_get("raw", TUCKFOLD_F32, 3, kShape, nullptr), TUCKFOLD_INVALID_ARGUMENT);
  tuckfold_plan* no_plan = nullptr;
  EXPECT_EQ(tuckfold_plan_get(nullptr, TUCKFOLD_F32, 3, kShape, &no_plan),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_plan_get("raw", 99, 3, kShape, &no_plan), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(tuckfold_plan_get("raw", TUCKFOLD_F32, 65, kShape, &no_plan),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(no_plan, nullptr);
  EXPECT_EQ(tuckfold_pack(plan_of("raw", std::span(kShape).first(2)).get(), &view, packed.data(),
                          packed.size(), nullptr, &bytes),
            TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("the plan is for f32 3x64"), std::string::npos);
}

TEST(CApi, OptionsMayBeOlderButNotNewer) {
  Ramp ramp;
  const PlanPtr plan = plan_of("block_quant(bits=2, round=stochastic)");
  tuckfold_options options{.struct_bytes = offsetof(tuckfold_options, threads), .seed = 3};
  options.threads = -1;  // past what an older caller knew
  const std::vector<std::byte> seeded = packed_by_c(plan.get(), ramp, &options);
  EXPECT_NE(seeded, packed_by_c(plan.get(), ramp));

  struct Newer {
    tuckfold_options known;
    std::int64_t unknown;
  } newer{{.struct_bytes = sizeof(Newer), .seed = 3}, 0};
  EXPECT_EQ(packed_by_c(plan.get(), ramp, &newer.known), seeded);
  newer.unknown = 1;
  const tuckfold_tensor view = ramp.view();
  std::vector<std::byte> out(seeded.size());
  std::size_t bytes = 0;
  EXPECT_EQ(tuckfold_pack(plan.get(), &view, out.data(), out.size(), &newer.known, &bytes),
            TUCKFOLD_UNSUPPORTED);
  options.struct_bytes = 0;
  EXPECT_EQ(tuckfold_pack(plan.get(), &view, out.data(), out.size(), &options, &bytes),
            TUCKFOLD_INVALID_ARGUMENT);
  options = {.struct_bytes = sizeof options, .threads = -1};
  EXPECT_EQ(tuckfold_pack(plan.get(), &view, out.data(), out.size(), &options, &bytes),
            TUCKFOLD_INVALID_ARGUMENT);
}

TEST(CApi, APlanStaysForThoseWhoHaveIt) {
  const PlanPtr kept = plan_of("dct_chop(keep=4)");
  EXPECT_EQ(plan_of("dct_chop(keep=4)").get(), kept.get());
  for (std::int64_t rows = 1; rows < 3000; ++rows) plan_of("raw", std::array{rows});
  EXPECT_NE(plan_of("dct_chop(keep=4)").get(), kept.get());  // dropped from the cache meanwhile
  Ramp ramp;
  EXPECT_EQ(packed_by_c(kept.get(), ramp).size(), 3U * 32 * 32 * 4);
  tuckfold_plan_release(nullptr);
}

TEST(CApi, LayersAboveReportErrorsOfTheirOwn) {
  EXPECT_EQ(tuckfold_set_error(TUCKFOLD_UNSUPPORTED, "not here"), TUCKFOLD_UNSUPPORTED);
  EXPECT_EQ(tuckfold_last_status(), TUCKFOLD_UNSUPPORTED);
  EXPECT_EQ(last_error(), "not here");
  tuckfold_clear_error();
  EXPECT_EQ(tuckfold_last_status(), TUCKFOLD_OK);
  EXPECT_EQ(last_error(), "");
}

TEST(CApi, ErrorsBelongToTheirThread) {
  tuckfold_spec* none = nullptr;
  EXPECT_NE(tuckfold_spec_parse("nothing_such", &none), TUCKFOLD_OK);
  const std::string mine = last_error();
  std::string theirs = "?";
  std::thread([&] { theirs = last_error(); }).join();
  EXPECT_EQ(theirs, "");
  EXPECT_EQ(last_error(), mine);
}

TEST(CApi, OptionsOfAProgramThatKnewNoStreamsStillFit) {
  Ramp ramp;
  const PlanPtr plan = plan_of("block_quant(bits=8)");
  tuckfold_options options{.struct_bytes = offsetof(tuckfold_options, stream), .threads = 1};
  options.stream = &options;  // past what an older caller knew
  EXPECT_EQ(packed_by_c(plan.get(), ramp, &options), packed_by_c(plan.get(), ramp));
}

TEST(CApi, WhichCodecsRunOnCudaFollowsFromTheBuild) {
  EXPECT_EQ(tuckfold_has_cuda() == 1, has_cuda());
  EXPECT_EQ(tuckfold_cuda_devices(), cuda_devices());
  bool any = false;
  for (const CodecInfo& codec : list_codecs()) any = any || codec.cuda;
  EXPECT_EQ(any, has_cuda());
  EXPECT_EQ(capi::codecs_json().find(R"("cuda": true)") != std::string::npos, has_cuda());
  if (!has_cuda()) {
    EXPECT_EQ(cuda_devices(), 0);
  }
}

TEST(CApi, VersionIsThatOfTheLibrary) {
  EXPECT_EQ(tuckfold_version(), version());
  EXPECT_EQ(tuckfold_cpu_target(), cpu_target());
}

}  // namespace
}  // namespace tuckfold
