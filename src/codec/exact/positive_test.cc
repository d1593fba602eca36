// positive against its definition; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/target.h"
#include "codec/contract_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

// Numbers on both sides of 0, and all that is special.
std::vector<double> hostile_values(DType dtype, std::int64_t count) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  std::vector<double> some = {0.0, 1.0, 3.0};
  if (is_float(dtype)) {
    const double tiny = dtype == DType::F16 ? 0x1p-24 : dtype == DType::F64 ? 0x1p-1074 : 0x1p-133;
    for (const double value : {-0.0, -1.0, tiny, -tiny, inf, -inf, nan, -nan, 1e-3, -1e-3}) {
      some.push_back(value);
    }
  }
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = some[random() % some.size()];
  return values;
}

TEST(Positive, ABitForEveryValueThatIsNotZeroOrLess) {
  const CodecSpec spec = CodecSpec::parse("positive");
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const DType dtype : ref::kLossyDTypes) {
      for (const std::int64_t count : {0, 1, 7, 8, 9, 63, 64, 65, 1024, 2500}) {
        const std::vector<double> values = hostile_values(dtype, count);
        std::vector<std::byte> wanted(static_cast<std::size_t>((count + 7) / 8));
        std::vector<double> ones(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (values[i] <= 0) continue;  // NaN is not
          wanted[i / 8] |= static_cast<std::byte>(1 << i % 8);
          ones[i] = 1;
        }
        const ref::Tensor in = std::move(ref::Tensor(dtype, {count}).fill(values));
        const ref::Tensor expected = std::move(ref::Tensor(dtype, {count}).fill(ones));
        const ref::Tensor out(dtype, {count});
        ASSERT_EQ(layout(spec, dtype, {count}).max_bytes, wanted.size());
        std::vector<std::byte> bytes(wanted.size());
        pack(spec, in.view(), bytes);
        ASSERT_EQ(bytes, wanted) << target << ' ' << to_string(dtype) << ' ' << count;
        unpack(spec, bytes, out.view());
        ASSERT_EQ(out.bytes(), expected.bytes()) << target << ' ' << to_string(dtype);
      }
    }
  }
  use_cpu_target(before);
}

TEST(Positive, WholeNumbersThatMustStayExactAreRefused) {
  const CodecSpec spec = CodecSpec::parse("positive");
  EXPECT_EQ(ref::code_of([&] { layout(spec, DType::I64, {8}); }), Errc::InvalidArgument);
}

}  // namespace
}  // namespace tuckfold
