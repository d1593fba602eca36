// Packs an at::Tensor in place, with any strides, and unpacks it into another.
//
//   cmake --preset release && cmake --build build/release --target tuckfold_example_pack_tensor
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linspace.h>
#include <tuckfold/codec.h>
#include <tuckfold/error.h>

#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

namespace {

tuckfold::DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return tuckfold::DType::F32;
    case at::kHalf: return tuckfold::DType::F16;
    case at::kBFloat16: return tuckfold::DType::BF16;
    case at::kDouble: return tuckfold::DType::F64;
    case at::kByte: return tuckfold::DType::U8;
    case at::kInt: return tuckfold::DType::I32;
    case at::kLong: return tuckfold::DType::I64;
    default: throw tuckfold::Error(tuckfold::Errc::InvalidArgument, "no dtype of ours");
  }
}

// A view of the tensor's own memory. Both count strides in elements.
tuckfold::TensorView view_of(const at::Tensor& tensor) {
  const auto shape = tensor.sizes(), strides = tensor.strides();
  return {tensor.mutable_data_ptr(), dtype_of(tensor),
          tuckfold::Shape(std::span(shape.data(), shape.size())),
          tuckfold::Shape(std::span(strides.data(), strides.size()))};
}

}  // namespace

int main() try {
  const at::Tensor image =
      at::linspace(0, 1, 3 * 64 * 64).view({64, 64, 3}).permute({2, 0, 1});  // channels last
  const at::Tensor restored = at::empty_like(image);

  const auto spec = tuckfold::CodecSpec::parse("dct_chop(keep=4)");
  const tuckfold::TensorView view = view_of(image);
  std::vector<std::byte> packed(layout(spec, view.dtype, view.shape).max_bytes);
  pack(spec, view, packed);
  unpack(spec, packed, view_of(restored));

  const auto worst = restored.sub(image).abs().max().item<float>();
  std::printf("%s: %zu -> %zu bytes, largest error %.4f\n", spec.print().c_str(), image.nbytes(),
              packed.size(), worst);
  return worst < 0.01F ? 0 : 1;
} catch (const tuckfold::Error& error) {
  std::fprintf(stderr, "pack_tensor: %s\n", error.what());
  return exit_code(error.code());
}
