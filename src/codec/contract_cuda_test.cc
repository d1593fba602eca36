// What codecs promise on a CUDA device: the CPU's bytes and the CPU's values, for specs generated
// from the registry.
#include <gtest/gtest.h>

#include "codec/contract_cuda_fixture.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pattern;

// Whether every stage runs on the device, and none that varies is followed by another.
bool runs_on_cuda(const CodecSpec& spec) {
  for (std::size_t i = 0; i < spec.stages().size(); ++i) {
    const Codec& row = row_of(spec.stages()[i]);
    if (row.cuda == nullptr) return false;
    if (row.info.name == "bounded" && spec.stages()[i]["codes"] == 2) return false;
    if (i + 1 == spec.stages().size()) continue;
    if (row.info.name == "bounded" || spec.stages()[i].codec->name == "bits") return false;
  }
  return true;
}

std::vector<ref::Group> cuda_groups() {
  std::vector<ref::Group> all;
  for (ref::Group& group : ref::groups()) {
    std::erase_if(group.specs, [](const CodecSpec& spec) { return !runs_on_cuda(spec); });
    if (!group.specs.empty()) all.push_back(std::move(group));
  }
  return all;
}

class CudaContract : public ::testing::TestWithParam<ref::Group> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  void compare_all(std::span<const DType> dtypes, const std::vector<Shape>& shapes, Pattern kind,
                   std::span<const Order> orders) {
    for (const CodecSpec& spec : GetParam().specs) {
      for (const DType dtype : dtypes) {
        for (const Shape& shape : shapes) {
          if (!ref::suits(spec, dtype, shape)) continue;
          for (const Order order : orders) {
            const ref::Tensor in = ref::input_for(spec, dtype, shape, kind, order);
            ASSERT_EQ(ref::difference_from_cpu(spec, in, 0, order), "");
          }
        }
      }
    }
  }
};

constexpr Order kRowMajor[] = {Order::RowMajor};

TEST_P(CudaContract, BytesAndValuesAreTheCpus) {
  compare_all(ref::kDeviceDTypes, {{24, 40}, {2, 3, 17, 19}, {70}, {64, 64}, {1}, {}, {3, 0, 8}},
              Pattern::Random, kRowMajor);
}

TEST_P(CudaContract, HostileValuesToo) {
  compare_all(ref::kDeviceDTypes, {{2, 33, 21}, {5, 64, 32}}, Pattern::Hostile, kRowMajor);
}

// What no pack has made, infinities and NaN among it. Codecs that refuse some bytes are left out.
TEST_P(CudaContract, RandomBytesToo) {
  std::mt19937 random(5);
  for (const CodecSpec& spec : GetParam().specs) {
    for (const DType dtype : ref::kDeviceDTypes) {
      for (const Shape& shape : {Shape{2, 33, 21}, Shape{5, 64, 32}}) {
        if (!ref::suits(spec, dtype, shape)) continue;
        std::vector<std::byte> bytes(layout(spec, dtype, shape).max_bytes);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        const ref::Tensor expected(dtype, shape), back(dtype, shape);
        if (ref::code_of([&] { unpack(spec, bytes, expected.view()); }) == Errc::CorruptData) {
          continue;
        }
        const ref::DeviceBytes packed(bytes);
        const ref::DeviceTensor to(back, 0);
        unpack(spec, packed.span(), to.view());
        to.fetch();
        ASSERT_EQ(ref::first_difference(dtype, back.bytes(), expected.bytes()), "")
            << spec.print() << " of " << to_string(dtype) << ' ' << to_string(shape);
      }
    }
  }
}

TEST_P(CudaContract, EveryOrderInMemoryToo) {
  constexpr DType kTwo[] = {DType::F32, DType::BF16};
  compare_all(kTwo, {{2, 3, 24, 40}, {2, 33, 21}}, Pattern::Ramp, ref::kOrders);
}

TEST_P(CudaContract, DtypesWithoutAKernelAreUnsupported) {
  for (const CodecSpec& spec : GetParam().specs) {
    for (const DType dtype : kDTypes) {
      const Shape shape{16, 24};
      if (dtype <= DType::I64 || !ref::suits(spec, dtype, shape)) continue;
      const ref::Tensor in = ref::input_for(spec, dtype, shape, Pattern::Random);
      const bool takes_all = std::ranges::all_of(spec.stages(), [](const Stage& stage) {
        return stage.codec->name == "raw" || stage.codec->name == "mask";
      });
      if (takes_all) {
        ASSERT_EQ(ref::difference_from_cpu(spec, in, 0, Order::RowMajor), "");
      } else {
        ASSERT_EQ(ref::code_of([&] {
                    static_cast<void>(ref::difference_from_cpu(spec, in, 0, Order::RowMajor));
                  }),
                  Errc::Unsupported)
            << spec.print() << ' ' << to_string(dtype);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaContract, ::testing::ValuesIn(cuda_groups()),
                         [](const auto& group) { return group.param.name; });

}  // namespace
}  // namespace tuckfold
