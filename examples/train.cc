// Trains a small network in C++, twice: as it is, and with less kept for the backward pass. Autograd gives
// what it saves to a store, which keeps the sign of a ReLU's output in one bit, the places of a pooling's
// maxima in a few, and nothing of its input. The gradients have the same bits.
//
//   cmake --preset release && cmake --build build/release --target tuckfold_example_train
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <tuckfold/codec.h>
#include <tuckfold/error.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

// ---- what is running: autograd does not say which operator saves a tensor

thread_local std::vector<std::string> t_operators;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
  t_operators.emplace_back(operation.name());
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) { t_operators.pop_back(); }

// ---- the store

struct Totals {
  std::size_t saved = 0, stored = 0;  // bytes
};

// A saved tensor as it is, or packed.
class Saved final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Saved(Totals& totals) : totals_(totals) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    const at::Tensor x = tensor.detach();  // the tensor itself would hold the node that saves it
    totals_.saved += x.nbytes();
    like_ = at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta));
    const std::string spec = spec_for(x);
    if (spec == kNothing) return;
    if (spec == kAll) {
      kept_ = x;
      version_ = x._version();
      totals_.stored += x.nbytes();
      return;
    }
    plan_ = std::make_unique<tuckfold::Plan>(tuckfold::CodecSpec::parse(spec), dtype_of(x),
                                             shape_of(x.sizes()));
    packed_.resize(plan_->layout().max_bytes);
    packed_.resize(plan_->pack(view_of(x), packed_));
    packed_.shrink_to_fit();
    totals_.stored += packed_.size();
  }

  at::Tensor call_unpack_hook() override {
    if (kept_.defined()) {
      TORCH_CHECK(kept_._version() == version_, "a saved tensor was modified in place");
      return kept_;
    }
    const at::Tensor x =
        at::empty_strided(like_.sizes(), like_.strides(), like_.options().device(at::kCPU));
    if (plan_ != nullptr) plan_->unpack(packed_, view_of(x));
    return x;
  }

 private:
  static constexpr const char *kAll = "", *kNothing = "nothing";

  // The codec that keeps what backward reads of it.
  static std::string spec_for(const at::Tensor& x) {
    const std::string by = t_operators.empty() ? "" : t_operators.back();
    if (by == "aten::relu") return "positive";  // backward asks whether it is above 0
    if (by != "aten::max_pool2d_with_indices") return kAll;
    return x.scalar_type() == at::kLong ? "bits"
                                        : kNothing;  // of its input backward reads the sizes
  }
  static tuckfold::DType dtype_of(const at::Tensor& x) {
    return x.scalar_type() == at::kLong ? tuckfold::DType::I64 : tuckfold::DType::F32;
  }
  static tuckfold::Shape shape_of(at::IntArrayRef sizes) {
    return tuckfold::Shape(std::span(sizes.data(), sizes.size()));
  }
  static tuckfold::TensorView view_of(const at::Tensor& x) {
    return {x.mutable_data_ptr(), dtype_of(x), shape_of(x.sizes()), shape_of(x.strides())};
  }

  Totals& totals_;
  at::Tensor kept_, like_;
  std::int64_t version_ = 0;
  std::unique_ptr<tuckfold::Plan> plan_;
  std::vector<std::byte> packed_;
};

// LibTorch has no default hooks of its own; its engine asks a virtual function for them.
class Engine final : public torch::autograd::Engine {
 public:
  static Engine& get() {
    static Engine engine;
    return engine;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return totals == nullptr ? nullptr : std::make_unique<Saved>(*totals);
  }

  Totals* totals = nullptr;  // null: autograd keeps what it saves
};

// ---- the network

struct Result {
  std::vector<at::Tensor> weights;
  float first = 0, last = 0;  // losses
};

Result train(int steps) {
  at::manual_seed(1);
  const auto weight = [](at::IntArrayRef sizes) {
    return at::randn(sizes).mul(0.1).set_requires_grad(true);
  };
  Result result{
      .weights = {weight({16, 1, 3, 3}), weight({32, 16, 3, 3}), weight({10, 32 * 7 * 7})}};
  const auto& w = result.weights;
  // A class for each place of a bright square.
  const at::Tensor labels = at::arange(64).remainder(10);
  at::Tensor images = at::rand({64, 1, 28, 28});
  for (std::int64_t i = 0; i < 64; ++i) {
    images[i][0].slice(0, 2 * (i % 10), 2 * (i % 10) + 8).slice(1, 4, 12).add_(1);
  }
  for (int step = 0; step < steps; ++step) {
    at::Tensor x = at::max_pool2d(at::relu(at::conv2d(images, w[0], {}, 1, 1)), 2);
    x = at::max_pool2d(at::relu(at::conv2d(x, w[1], {}, 1, 1)), 2);
    const at::Tensor loss = at::cross_entropy_loss(at::linear(x.flatten(1), w[2]), labels);
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& each : w) {
      each.sub_(each.grad(), 0.05);
      each.mutable_grad().reset();
    }
    (step == 0 ? result.first : result.last) = loss.item<float>();
  }
  return result;
}

}  // namespace

int main() try {
  constexpr int kSteps = 30;
  at::addGlobalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  torch::autograd::set_default_engine_stub(
      []() -> torch::autograd::Engine& { return Engine::get(); });
  const Result plain = train(kSteps);
  Totals totals;
  Engine::get().totals = &totals;
  const Result stored = train(kSteps);
  Engine::get().totals = nullptr;

  bool equal = plain.last == stored.last;
  for (std::size_t i = 0; i < plain.weights.size(); ++i) {
    equal = equal && at::equal(plain.weights[i], stored.weights[i]);
  }
  const auto ratio = static_cast<double>(totals.saved) / static_cast<double>(totals.stored);
  std::printf(
      "loss %.3f -> %.3f; a step saves %.1f MB and stores %.1f MB, %.1f times less; weights %s\n",
      stored.first, stored.last, 1e-6 * static_cast<double>(totals.saved) / kSteps,
      1e-6 * static_cast<double>(totals.stored) / kSteps, ratio,
      equal ? "are equal in every bit" : "DIFFER");
  return equal && ratio > 6 && stored.last < stored.first ? 0 : 1;
} catch (const tuckfold::Error& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return exit_code(error.code());
} catch (const std::exception& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return 1;
}
