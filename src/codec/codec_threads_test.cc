// Calls on several threads at once.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/tensor_fixture.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::Pattern;
using ref::Tensor;

TEST(CodecThreads, CallersOnSeveralThreadsGetTheSameBytes) {
  std::vector<std::thread> callers;
  const Tensor in = std::move(Tensor(DType::F32, {4, 64, 64}).fill(Pattern::Random));
  for (const char* text :
       {"dct_chop(keep=4)", "dct_chop(keep=3, coef=f16)", "raw", "dct_chop | raw"}) {
    callers.emplace_back([&in, spec = CodecSpec::parse(text)] {
      std::vector<std::byte> first(layout(spec, in.dtype(), in.shape()).max_bytes), again(first);
      const Tensor out(in.dtype(), in.shape());
      pack(spec, in.view(), first, {.threads = 1});
      for (int turn = 0; turn < 20; ++turn) {
        pack(spec, in.view(), again, {.threads = 1 + turn % 3});
        unpack(spec, again, out.view(), {.threads = 1 + turn % 3});
        EXPECT_EQ(again, first);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace tuckfold
