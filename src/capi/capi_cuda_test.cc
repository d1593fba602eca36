// The C API on a CUDA device: the bytes of the CPU, workspace and stream of the caller's, mistakes.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "capi/json.h"
#include "tuckfold/c.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using PlanPtr = std::unique_ptr<tuckfold_plan, decltype(&tuckfold_plan_release)>;

constexpr std::int64_t kShape[] = {6, 40};
constexpr std::size_t kElems = 240;

class CApiCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tuckfold_cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  static PlanPtr plan_of(const char* text) {
    tuckfold_plan* plan = nullptr;
    EXPECT_EQ(tuckfold_plan_get(text, TUCKFOLD_F32, 2, kShape, &plan), TUCKFOLD_OK)
        << tuckfold_last_error();
    return {plan, tuckfold_plan_release};
  }
  static std::vector<float> ramp() {
    std::vector<float> values(kElems);
    std::iota(values.begin(), values.end(), 0.5F);
    return values;
  }
  static tuckfold_tensor on_device(const DeviceBytes& bytes) {
    return {.data = bytes.data(),
            .dtype = TUCKFOLD_F32,
            .rank = 2,
            .shape = kShape,
            .device = TUCKFOLD_CUDA};
  }
};

TEST_F(CApiCuda, PacksAndUnpacksWithAWorkspaceOfTheCallers) {
  std::vector<float> values = ramp();
  const DeviceBytes in(std::as_bytes(std::span(values)));
  for (const char* text : {"raw", "raw | raw"}) {
    const PlanPtr plan = plan_of(text);
    const tuckfold_layout& fit = *tuckfold_plan_layout(plan.get());
    const DeviceBytes packed(fit.max_bytes), back(kElems * sizeof(float));
    const DeviceBytes workspace(fit.workspace_bytes);
    const tuckfold_options options{.struct_bytes = sizeof options,
                                   .workspace = workspace.data(),
                                   .workspace_bytes = fit.workspace_bytes};
    const tuckfold_tensor from = on_device(in), to = on_device(back);
    std::size_t written = 0;
    ASSERT_EQ(tuckfold_pack(plan.get(), &from, packed.data(), fit.max_bytes, &options, &written),
              TUCKFOLD_OK)
        << tuckfold_last_error();
    EXPECT_EQ(written, fit.max_bytes);
    ASSERT_EQ(tuckfold_unpack(plan.get(), packed.data(), written, &to, &options), TUCKFOLD_OK)
        << tuckfold_last_error();
    EXPECT_EQ(std::memcmp(back.fetch().data(), values.data(), kElems * sizeof(float)), 0) << text;
    EXPECT_TRUE(packed.guards_untouched() && back.guards_untouched() &&
                workspace.guards_untouched());
  }
}

TEST_F(CApiCuda, ManyTensorsComeBack) {
  std::vector<float> values = ramp();
  const DeviceBytes in(std::as_bytes(std::span(values)));
  const PlanPtr plan = plan_of("raw");
  const tuckfold_layout& fit = *tuckfold_plan_layout(plan.get());
  const DeviceBytes a(fit.max_bytes), b(fit.max_bytes), back_a(fit.max_bytes),
      back_b(fit.max_bytes);
  const tuckfold_tensor from[] = {on_device(in), on_device(in)};
  const tuckfold_tensor to[] = {on_device(back_a), on_device(back_b)};
  void* const out[] = {a.data(), b.data()};
  const void* const packed[] = {a.data(), b.data()};
  const std::size_t rooms[] = {fit.max_bytes, fit.max_bytes};
  std::size_t written[] = {0, 0};
  const tuckfold_plan* const plans[] = {plan.get(), plan.get()};
  ASSERT_EQ(tuckfold_pack_many(plans, 2, from, out, rooms, nullptr, written), TUCKFOLD_OK)
      << tuckfold_last_error();
  EXPECT_EQ(written[1], fit.max_bytes);
  ASSERT_EQ(tuckfold_unpack_many(plans, 2, packed, written, to, nullptr), TUCKFOLD_OK)
      << tuckfold_last_error();
  EXPECT_EQ(std::memcmp(back_b.fetch().data(), values.data(), kElems * sizeof(float)), 0);
}

TEST_F(CApiCuda, MistakesAreStatusesWithMessages) {
  std::vector<float> values = ramp();
  const DeviceBytes in(std::as_bytes(std::span(values)));
  const tuckfold_tensor view = on_device(in);
  const DeviceBytes packed(kElems * sizeof(float) + 16);
  std::size_t written = 0;
  const auto status_of = [&](const char* text, std::byte* out, const tuckfold_options* options) {
    return tuckfold_pack(plan_of(text).get(), &view, out, packed.span().size(), options, &written);
  };
  EXPECT_EQ(status_of("raw", packed.data() + 4, nullptr), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tuckfold_last_error()).find("16 bytes"), std::string::npos);
  const tuckfold_options small{
      .struct_bytes = sizeof small, .workspace = packed.data(), .workspace_bytes = 16};
  EXPECT_EQ(status_of("raw | raw", packed.data(), &small), TUCKFOLD_INVALID_ARGUMENT);
  EXPECT_EQ(status_of("raw | zstd", packed.data(), nullptr), TUCKFOLD_UNSUPPORTED);
  EXPECT_NE(std::string(tuckfold_last_error()).find("CPU alone"), std::string::npos);
}

TEST_F(CApiCuda, CodecsThatRunThereSaySo) {
  EXPECT_EQ(tuckfold_has_cuda(), 1);
  EXPECT_TRUE(list_codecs()[0].cuda);
  EXPECT_NE(capi::codecs_json().find(R"("cuda": true)"), std::string::npos);
}

}  // namespace
}  // namespace tuckfold
