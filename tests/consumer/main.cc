// Packs an image to a quarter of its values and says how large it became.
#include <tuckfold/codec.h>

#include <cstdio>

int main() {
  using namespace tuckfold;
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
  const std::vector<float> image(64 * 64, 1.0F);
  std::vector<std::byte> packed(layout(spec, DType::F32, {64, 64}).max_bytes);
  const std::size_t bytes = pack(spec, {image.data(), DType::F32, {64, 64}}, packed);
  std::printf("%s: %zu -> %zu bytes\n", spec.print().c_str(), image.size() * sizeof(float), bytes);
  return bytes == 64 * 64 / 4 * sizeof(float) ? 0 : 1;
}
