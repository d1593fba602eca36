// The ladder of butterflies of 4096 features, forward, with a bias: the library's kernels, and a pipeline of three
// digits that may follow them, see butterfly_pipeline.cuh. Error is that of a sample, relative, by two-norms.
#include <memory>

#include "butterfly_pipeline_f32.cuh"
#include "butterfly_pipeline_half.cuh"
#include "ladder.cuh"

// As src/base/cuda/raise.cc, which needs more of the library than a ladder has.
void tuckfold::cuda::raise(Errc, const char* what, const char* text) {
  std::fprintf(stderr, "%s: %s\n", what, text);
  std::exit(1);
}

namespace tuckfold::structured::pipeline {
namespace {

constexpr int kStages = 12, kSamplesHere = 4096, kMostSamples = 2 * kSamplesHere;
constexpr double kAllInputBytes = 2e8;  // as bench/experiments/layers: no cache holds them

float narrow_to(float value, float) { return value; }
BF16 narrow_to(float value, BF16) { return to_bf16(value); }
double wide_of(float value) { return value; }
double wide_of(BF16 value) { return to_float(value); }

CudaButterfly square() {
  CudaButterfly s{};
  s.in = s.out = s.n = kFeatures;
  s.stack = 1;
  s.pairs = kStages * kFeatures / 2;
  s.grows = true;
  return s;
}

template <class T>
std::vector<T> narrow_all(std::span<const float> values, float scale) {
  std::vector<T> result;
  result.reserve(values.size());
  for (const float value : values) result.push_back(narrow_to(value * scale, T{}));
  return result;
}

// Inputs of the same values in different memory, and outputs.
template <class T>
class Numbers {
 public:
  Numbers() {
    constexpr std::size_t kX = std::size_t{kMostSamples} * kFeatures,
                          kTwiddles = 2 * kStages * kFeatures;
    const std::vector<float> values = ladder::noise(kX + kTwiddles + kFeatures);
    const std::span<const float> all(values);
    x_ = narrow_all<T>(all.first(kX), 1);
    twiddle_ = narrow_all<T>(all.subspan(kX, kTwiddles), std::sqrt(1.5f));  // stages keep the norm
    bias_ = narrow_all<T>(all.last(kFeatures), 1);
    twiddle = std::make_unique<ladder::Buffer<T>>(twiddle_);
    bias = std::make_unique<ladder::Buffer<T>>(bias_);
    const auto count = static_cast<int>(kAllInputBytes / (sizeof(T) * kSamplesHere * kFeatures));
    for (int i = 0; i < count; ++i) {
      x.push_back(std::make_unique<ladder::Buffer<T>>(x_));
      y.push_back(std::make_unique<ladder::Buffer<T>>(kX));
    }
  }
  int count() const { return static_cast<int>(x.size()); }

  // Of the first output: the largest of some samples, the first and the last among them. Infinite where one
  // behind them was written.
  double error(int samples) const {
    const std::vector<T> got = y[0]->values();
    double most = 0;
    for (int sample = 0; sample < samples;) {
      const std::size_t at = std::size_t{static_cast<unsigned>(sample)} * kFeatures;
      most = std::max(most, error_of(std::span(x_).subspan(at, kFeatures),
                                     std::span(got).subspan(at, kFeatures)));
      sample = sample < samples - 1 ? std::min(sample + 123, samples - 1) : samples;
    }
    for (std::size_t i = std::size_t{static_cast<unsigned>(samples)} * kFeatures; i < got.size();
         ++i) {
      if (!std::isnan(wide_of(got[i]))) return std::numeric_limits<double>::infinity();
    }
    return most;
  }

  std::vector<std::unique_ptr<ladder::Buffer<T>>> x, y;
  std::unique_ptr<ladder::Buffer<T>> twiddle, bias;

 private:
  double error_of(std::span<const T> in, std::span<const T> out) const {
    std::vector<double> v(kFeatures);
    for (int i = 0; i < kFeatures; ++i) v[i] = wide_of(in[i]);
    for (int stage = 0; stage < kStages; ++stage) {
      for (int pair = 0; pair < kFeatures / 2; ++pair) {
        const int apart = 1 << stage, k = 2 * (pair - pair % apart) + pair % apart;
        const T* t = &twiddle_[4 * (stage * kFeatures / 2 + pair)];
        const double a = v[k], b = v[k + apart];
        v[k] = wide_of(t[0]) * a + wide_of(t[1]) * b;
        v[k + apart] = wide_of(t[2]) * a + wide_of(t[3]) * b;
      }
    }
    double wrong = 0, norm = 0;
    for (int i = 0; i < kFeatures; ++i) {
      const double wanted = v[i] + wide_of(bias_[i]), off = wide_of(out[i]) - wanted;
      wrong += off * off;
      norm += wanted * wanted;
    }
    return std::isnan(wrong) ? std::numeric_limits<double>::infinity() : std::sqrt(wrong / norm);
  }

  std::vector<T> x_, twiddle_, bias_;
};

template <class T>
class Rungs {
 public:
  Rungs(ladder::Ladder& steps, const char* dtype, double allowed)
      : steps_(steps), dtype_(dtype), allowed_(allowed) {}

  // forward(s, samples, x, twiddle, bias, y, stream) does the work.
  template <class Forward>
  void rung(const std::string& what, Forward forward, int samples = kSamplesHere) {
    const auto call = call_of(forward);
    const auto error = [&] {
      const double whole = numbers_.error(samples);
      numbers_.y[0]->poison();  // a last tile that is not whole
      call(nullptr, 0, samples - 3);
      ladder::check(cudaDeviceSynchronize(), "synchronize");
      return std::max(whole, numbers_.error(samples - 3));
    };
    time(what, call, samples, 2, error);
  }
  // All of the kernel but some loads or stores: a diagnosis, of no use as a variant. `moved` is how often it
  // passes over as much as x.
  template <class Forward>
  void part(const std::string& what, Forward forward, double moved) {
    time(what, call_of(forward), kSamplesHere, moved, nullptr);
  }
  // Each call with an output of its own: else most of y is still in the cache when it is written again.
  template <class Forward>
  void with_outputs(const std::string& what, Forward forward) {
    own_outputs_ = true;
    rung(what + ", an output each", forward);
    own_outputs_ = false;
  }
  void copy() {
    const auto call = [this](cudaStream_t stream, int i, int samples) {
      ladder::check(cudaMemcpyAsync(out(i), numbers_.x[i]->data(), sizeof(T) * kFeatures * samples,
                                    cudaMemcpyDeviceToDevice, stream),
                    "cudaMemcpyAsync");
    };
    for (const bool own : {false, true}) {
      own_outputs_ = own;
      time(own ? "copy, an output each" : "copy", call, kSamplesHere, 2, nullptr);
    }
    own_outputs_ = false;
  }

 private:
  T* out(int i) const { return numbers_.y[own_outputs_ ? i : 0]->data(); }

  template <class Forward>
  auto call_of(Forward forward) const {
    return [this, forward](cudaStream_t stream, int i, int samples) {
      forward(shape_, samples, numbers_.x[i]->data(), numbers_.twiddle->data(),
              numbers_.bias->data(), out(i), stream);
    };
  }
  template <class Call, class Error>
  void time(const std::string& what, const Call& call, int samples, double moved, Error error) {
    std::string name = dtype_ + (", " + what);
    if (samples != kSamplesHere) name += ", " + std::to_string(samples) + " samples";
    numbers_.y[0]->poison();
    steps_.replayed(
        name.c_str(), moved * sizeof(T) * kFeatures * samples, numbers_.count(),
        [&](cudaStream_t stream, int i) { call(stream, i, samples); }, error, allowed_);
  }

  ladder::Ladder& steps_;
  std::string dtype_;
  double allowed_;
  Numbers<T> numbers_;
  const CudaButterfly shape_ = square();
  bool own_outputs_ = false;
};

struct HalfPipeline {
  template <class L, Way kWay>
  static auto of() {
    return half_forward<BF16, L, kWay>;
  }
};
struct FloatPipeline {
  template <class L, Way kWay>
  static auto of() {
    return float_forward<L, kWay>;
  }
};

// What both types have. `Pipeline` gives the forward of a line and a way. 528 samples are one tile of halves for
// each of the H200's 66 clusters, two of floats, and stay in the cache: what a call costs at least. The library has
// another kernel for so few floats, so that `present` begins at 2112.
template <class Pipeline, class L, class T, class Present>
void run_all(Rungs<T>& rungs, Present present) {
  const auto whole = Pipeline::template of<L, Way::Whole>();
  rungs.copy();
  rungs.rung("present", present);
  rungs.rung("pipeline", whole);
  rungs.rung("pipeline, plain stores", Pipeline::template of<L, Way::PlainStores>());
  rungs.rung("pipeline, the next kernel starts early", Pipeline::template of<L, Way::NextEarly>());
  rungs.part("pipeline, no stores", Pipeline::template of<L, Way::NoStores>(), 1);
  rungs.part("pipeline, no loads", Pipeline::template of<L, Way::NoLoads>(), 1);
  rungs.part("pipeline, neither", Pipeline::template of<L, Way::Neither>(), 0);
  rungs.with_outputs("present", present);
  rungs.with_outputs("pipeline", whole);
  rungs.rung("pipeline", whole, 528);
  for (const int samples : {2112, kMostSamples}) {
    rungs.rung("present", present, samples);
    rungs.rung("pipeline", whole, samples);
  }
}

// Places are those in which tiles are loaded, and those for the last digit.
void run_bf16(ladder::Ladder& steps) {
  Rungs<BF16> rungs(steps, "bf16", 6e-3);
  const auto present = [](const CudaButterfly& s, std::int64_t samples, const void* x,
                          const void* twiddle, const void* bias, void* y, void* stream) {
    wide_forward(s, DType::BF16, samples, x, twiddle, bias, y, stream);
  };
  run_all<HalfPipeline, Line<4, 3, 1>>(rungs, present);  // 4 + 3 places
  rungs.rung("pipeline, loads a tile later", half_forward<BF16, Line<4, 3, 2>>);
  rungs.rung("pipeline, 3 + 3 places", half_forward<BF16, Line<3, 3, 1>>);
}

void run_f32(ladder::Ladder& steps) {
  Rungs<float> rungs(steps, "f32", 1e-6);
  run_all<FloatPipeline, Line<4, 2, 1>>(rungs, cluster_forward);  // 4 + 2 places
  rungs.rung("pipeline, loads a tile later", float_forward<Line<4, 2, 2>>);
  rungs.rung("pipeline, 5 + 1 places", float_forward<Line<5, 1, 1>>);
  rungs.rung("pipeline, 3 + 3 places", float_forward<Line<3, 3, 1>>);
}

}  // namespace
}  // namespace tuckfold::structured::pipeline

int main(int argc, char** argv) {
  ladder::Ladder steps("butterfly", argc, argv);
  tuckfold::structured::pipeline::run_bf16(steps);
  tuckfold::structured::pipeline::run_f32(steps);
  return steps.finish();
}
