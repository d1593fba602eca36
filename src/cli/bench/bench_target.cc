#include "cli/bench/bench_target.h"

namespace tuckfold::cli {
namespace {

class CodecTarget : public BenchTarget {
 public:
  CodecTarget(const CodecSpec& spec, const Layout& fit, const Array& array, const HugeBuffer& out,
              int threads)
      : BenchTarget(spec.print(), false, fit.fixed),
        spec_(spec),
        packed_(fit.max_bytes),
        workspace_(fit.workspace_bytes),
        in_(array.view()),
        out_(out.data(), array.dtype, array.shape) {
    options_.threads = threads;
    options_.workspace = workspace_.span();
  }

  std::size_t pack() override {
    return bytes_ = tuckfold::pack(spec_, in_, packed_.span(), options_);
  }
  void unpack() override { tuckfold::unpack(spec_, packed_.span().first(bytes_), out_, options_); }

 private:
  CodecSpec spec_;
  HugeBuffer packed_, workspace_;
  ConstTensorView in_;
  TensorView out_;
  RunOptions options_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<BenchTarget> codec_target(const CodecSpec& spec, const Array& array,
                                          const HugeBuffer& out, int threads) {
  return std::make_unique<CodecTarget>(spec, layout(spec, array.dtype, array.shape), array, out,
                                       threads);
}

}  // namespace tuckfold::cli
