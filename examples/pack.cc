// Packs an array with a plan that is made once, and unpacks it in place.
//
//   cmake --preset release && cmake --build build/release --target tuckfold_example_cc
#include <tuckfold/codec.h>
#include <tuckfold/error.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

int main() try {
  std::vector<float> images(8 * 3 * 64 * 64);
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<float>(i) / static_cast<float>(images.size());
  }
  const std::vector<float> original = images;

  const auto spec = tuckfold::CodecSpec::parse("dct_chop(keep=4)");
  const tuckfold::Plan plan(spec, tuckfold::DType::F32, {8, 3, 64, 64});  // made once, kept
  std::vector<std::byte> packed(plan.layout().max_bytes);
  plan.pack({images.data(), tuckfold::DType::F32, {8, 3, 64, 64}}, packed);
  plan.unpack(packed, {images.data(), tuckfold::DType::F32, {8, 3, 64, 64}});

  float worst = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    worst = std::max(worst, std::abs(images[i] - original[i]));
  }
  std::printf("%s: %zu -> %zu bytes, largest error %.4f\n", spec.print().c_str(),
              images.size() * sizeof(float), packed.size(), static_cast<double>(worst));
  return worst < 0.01F ? 0 : 1;
} catch (const tuckfold::Error& error) {
  std::fprintf(stderr, "pack: %s\n", error.what());
  return exit_code(error.code());
}
