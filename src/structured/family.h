// What a family of structured matrices declares: its weights, and its arithmetic on a part of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/structured.h"

namespace tuckfold::structured {

inline constexpr std::size_t kMaxWeights = 6;

// A layer's weights in the type of its arithmetic, in the order of its declaration.
template <class T>
struct Weights {
  const T* at[kMaxWeights] = {};
  const std::int64_t* permutation = nullptr;
  const T* prepared = nullptr;  // what prepare() made of them, once for a call
};
// Sums of gradients of the same, to add to.
template <class T>
struct Gradients {
  T* at[kMaxWeights] = {};
  T* prepared = nullptr;
};

// How a part of a batch is stored: samples one after the other, or as tiles, the batch last.
enum class Order : unsigned char { Rows, Tile };

// One family's arithmetic for one layer. Backward is given x alone and computes the rest again.
// Samples that fill a tile up are zero, in x and in gradients.
template <class T>
class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual Order order() const { return Order::Rows; }
  // Samples that go through at once, a multiple of granule(), which is one of 16.
  virtual std::int64_t samples(bool /*backward*/) const { return 128; }
  virtual std::int64_t granule() const { return 16; }
  virtual std::int64_t prepared_elems(bool /*backward*/) const { return 0; }
  virtual void prepare(const Weights<T>&, T* /*prepared*/) const {}
  // Sums of gradients for what was prepared; finish() adds what they give to those of the weights.
  virtual std::int64_t prepared_gradient_elems() const { return 0; }
  virtual void finish(const Weights<T>&, const Gradients<T>&) const {}

  virtual std::int64_t forward_scratch(std::int64_t samples) const = 0;
  virtual std::int64_t backward_scratch(std::int64_t samples) const = 0;
  virtual void forward(const Weights<T>& w, const T* x, T* y, std::int64_t samples,
                       T* scratch) const = 0;
  // gx may be null where nobody asks for it.
  virtual void backward(const Weights<T>& w, const Gradients<T>& gw, const T* x, const T* gy, T* gx,
                        std::int64_t samples, T* scratch) const = 0;
};

struct ForwardJob;
struct BackwardJob;

// The same on a GPU, where there are kernels for it. Pointers of jobs are to memory of the device.
class CudaKernel {
 public:
  virtual ~CudaKernel() = default;
  virtual bool takes(DType dtype) const = 0;
  virtual std::size_t workspace_bytes(DType dtype, std::int64_t samples, bool backward) const = 0;
  virtual void forward(const ForwardJob& job, void* workspace, void* stream) const = 0;
  virtual void backward(const BackwardJob& job, void* workspace, void* stream) const = 0;
};

// An operator of the layer as a framework without our kernels runs it, for planners to count.
struct PlainStep {
  enum class Kind : unsigned char {
    Product,  // `groups` products of samples x k by k x n
    Map,      // n numbers, each from the same place of k operands
    Move,     // n numbers to other places
  };
  Kind kind;
  std::int64_t n = 1, k = 2, groups = 1;
  std::int64_t times = 1;  // so many of the same kind
  std::int64_t saves = 0;  // numbers of each sample that backward needs, each time
  bool per_sample = true;  // Map and Move: n numbers of each sample, or in all
};

// What a layer is, however it computes.
struct Declaration {
  std::vector<WeightInfo> weights;
  double flops_per_sample = 0;   // of the product, without the bias
  std::vector<PlainStep> plain;  // of a forward pass, without the bias
  std::unique_ptr<Kernel<float>> f32;
  std::unique_ptr<Kernel<double>> f64;
  std::unique_ptr<CudaKernel> cuda;  // may be null
};

// A parameter of a family's text.
struct OptionInfo {
  std::string_view name, summary;
  std::int64_t initial;                       // words: the index of one
  std::int64_t least, most;                   // of a number
  std::span<const std::string_view> words{};  // not empty: one of these
};

// A family's row in the registry.
struct Family {
  std::string_view name, summary;
  std::span<const OptionInfo> options;
  // `values` in the order of options; throws InvalidArgument where sizes do not fit.
  Declaration (*declare)(std::span<const std::int64_t> values, std::int64_t in, std::int64_t out);
};
std::span<const Family* const> families();

inline constexpr std::string_view kFalseTrue[] = {"false", "true"};

// The smallest power of two that is at least n, which must be at least 1.
constexpr std::int64_t power_of_two(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tuckfold::structured
