// How much of a picture dct_quant keeps at each rate, held on both sides: a change of the search or
// of the bits that costs quality, or gains some, shows here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

constexpr int kSide = 256;
using Picture = std::vector<float>;  // kSide x kSide

// Uniform in [-1, 1), the same on every machine.
class Chance {
 public:
  explicit Chance(unsigned seed) : random_(seed) {}
  double operator()() { return static_cast<double>(random_()) / 2147483648.0 - 1; }

 private:
  std::mt19937 random_;
};

// Waves of a few lengths, with some noise.
Picture field() {
  Chance chance(1);
  Picture picture;
  for (int i = 0; i < kSide * kSide; ++i) {
    const double r = i / kSide, c = i % kSide;
    picture.push_back(static_cast<float>(std::sin(0.021 * r + 0.4 * std::sin(0.03 * c)) +
                                         0.5 * std::cos(0.083 * c - 0.05 * r) +
                                         0.25 * std::sin(0.17 * r) + 0.01 * chance()));
  }
  return picture;
}

// Discs in front of each other: flat, with sharp edges.
Picture edges() {
  Chance chance(2);
  Picture picture(kSide * kSide, 0.5f);
  for (int disc = 0; disc < 60; ++disc) {
    const double row = 128 + 128 * chance(), col = 128 + 128 * chance();
    const double radius = 20 + 18 * chance(), shade = 0.5 + 0.5 * chance();
    for (int i = 0; i < kSide * kSide; ++i) {
      if (std::hypot(i / kSide - row, i % kSide - col) < radius) {
        picture[static_cast<std::size_t>(i)] = static_cast<float>(shade);
      }
    }
  }
  return picture;
}

// Noise, smoothed over 3 x 3 and cut off below 0: an activation.
Picture relu() {
  Chance chance(3);
  std::vector<double> noise(kSide * kSide);
  for (double& value : noise) value = chance() + chance() + chance();
  Picture picture;
  for (int i = 0; i < kSide * kSide; ++i) {
    double sum = 0;
    for (int j = 0; j < 9; ++j) {
      const int r = (i / kSide + j / 3) % kSide, c = (i % kSide + j % 3) % kSide;
      sum += noise[static_cast<std::size_t>(r * kSide + c)] / 9;
    }
    picture.push_back(static_cast<float>(std::max(sum, 0.0)));
  }
  return picture;
}

Picture moved(Picture picture, float by) {
  for (float& value : picture) value += by;
  return picture;
}

// In dB, of the picture's own range.
double psnr(const std::string& text, const Picture& picture) {
  const CodecSpec spec = CodecSpec::parse(text);
  const Shape shape{kSide, kSide};
  std::vector<std::byte> packed(layout(spec, DType::F32, shape).max_bytes);
  pack(spec, ConstTensorView(picture.data(), DType::F32, shape), packed);
  Picture back(picture.size());
  unpack(spec, packed, TensorView(back.data(), DType::F32, shape));
  double sum = 0;
  for (std::size_t i = 0; i < back.size(); ++i) sum += std::pow(double{picture[i]} - back[i], 2);
  const auto [low, high] = std::minmax_element(picture.begin(), picture.end());
  return 20 * std::log10(*high - *low) - 10 * std::log10(sum / static_cast<double>(back.size()));
}
std::string at(double rate, const char* more = "") {
  return fmt::format("dct_quant(rate={}{})", rate, more);
}

TEST(DctQuantQuality, PicturesComeBackAsWellAsEver) {
  struct Golden {
    const char* name;
    Picture picture;
    double wanted[5];  // at rates 1, 2, 4, 8, 16
  };
  constexpr double kRates[] = {1, 2, 4, 8, 16};
  for (const Golden& golden : {Golden{"field", field(), {47.04, 56.04, 66.81, 90.92, 138.86}},
                               Golden{"edges", edges(), {29.12, 33.47, 44.75, 68.77, 116.99}},
                               Golden{"relu", relu(), {21.55, 26.25, 37.49, 61.57, 109.73}}}) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_NEAR(psnr(at(kRates[i]), golden.picture), golden.wanted[i], 0.15)
          << golden.name << " at rate " << kRates[i];
    }
  }
}

TEST(DctQuantQuality, MoreBitsNeverHurtSmoothData) {
  for (const char* more : {", dc=4", "", ", dc=12"}) {
    double before = 0;
    for (int rate = 1; rate <= 16; ++rate) {
      const double now = psnr(at(rate, more), field());
      EXPECT_GT(now, before) << rate << more;
      before = now;
    }
  }
}

TEST(DctQuantQuality, FewBitsOfTheMeanSuitValuesNearZero) {
  for (const double rate : {1.0, 2.0, 4.0, 8.0}) {
    const double four = psnr(at(rate, ", dc=4"), relu()), eight = psnr(at(rate), relu());
    EXPECT_GT(four, eight + 0.1) << rate;
    EXPECT_LT(four, eight + 1.5) << rate;
  }
}

TEST(DctQuantQuality, ManyBitsOfTheMeanSuitValuesFarFromZeroAndAnOffsetMoreSo) {
  const Picture far = moved(field(), 300);
  for (const double rate : {1.0, 2.0, 4.0, 8.0}) {
    const double four = psnr(at(rate, ", dc=4"), far), eight = psnr(at(rate), far);
    const double repaired = psnr(at(rate, ", dc=4, offset=300"), far);
    EXPECT_GT(eight, four + 3) << rate;
    EXPECT_GT(repaired, eight) << rate;
    EXPECT_NEAR(repaired, psnr(at(rate, ", dc=4"), field()), 0.1) << rate;
  }
}

TEST(DctQuantQuality, ClampingHelpsWhatWasClamped) {
  for (const double rate : {1.0, 2.0, 4.0, 8.0}) {
    EXPECT_GT(psnr(at(rate, ", clamp=zero"), relu()), psnr(at(rate), relu()) + 0.2) << rate;
  }
}

}  // namespace
}  // namespace tuckfold
