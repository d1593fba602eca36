// bounded's parts are packed and unpacked by several threads.
#include <gtest/gtest.h>

#include <vector>

#include "base/tensor_fixture.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::Tensor;

TEST(BoundedThreads, PackAndUnpackTheSame) {
  const Tensor in = std::move(Tensor(DType::F32, {12, 64, 65}).fill(ref::Pattern::Hostile));
  for (const char* text : {"bounded(abs=1e-3, codes=bits)", "bounded(abs=1e-3, codes=bytes)",
                           "bounded(rel=1e-3, codes=bits)", "bounded(rel=1e-3, codes=bytes)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const auto packed = [&](int threads) {
      std::vector<std::byte> bytes(layout(spec, in.dtype(), in.shape()).max_bytes);
      bytes.resize(pack(spec, in.view(), bytes, {.threads = threads}));
      return bytes;
    };
    const std::vector<std::byte> wanted = packed(1);
    const Tensor values(in.dtype(), in.shape());
    unpack(spec, wanted, values.view(), {.threads = 1});
    for (int turn = 0; turn < 10; ++turn) {
      const int threads = 1 + turn % 4;
      ASSERT_EQ(packed(threads), wanted) << text;
      const Tensor out(in.dtype(), in.shape());
      unpack(spec, wanted, out.view(), {.threads = threads});
      ASSERT_EQ(out.bytes(), values.bytes()) << text;
    }
  }
}

}  // namespace
}  // namespace tuckfold
