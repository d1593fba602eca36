// Structured layers in C.
#include "tuckfold/structured.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/parallel.h"
#include "capi/handles.h"
#include "tuckfold/c.h"

struct tuckfold_structured {
  tuckfold::StructuredLayer layer;
  std::string json;
};

namespace tuckfold::capi {
namespace {

std::string layer_json(const StructuredLayer& layer) {
  std::vector<std::string> weights;
  for (const WeightInfo& info : layer.weights()) {
    weights.push_back(fmt::format(
        R"({{"name": {}, "shape": [{}], "trained": {}, "deviation": {}}})", json_string(info.name),
        fmt::join(info.shape.begin(), info.shape.end(), ", "), info.trained, info.deviation));
  }
  return fmt::format(
      R"({{"text": {}, "in": {}, "out": {}, "weights": [{}], "weight_count": {}, "flops_per_sample": {}}})",
      json_string(layer.text()), layer.in(), layer.out(), fmt::join(weights, ", "),
      layer.weight_count(), layer.flops(1));
}

std::string structures_json() {
  std::vector<std::string> all;
  for (const StructureInfo& family : structures()) {
    std::vector<std::string> options;
    for (const StructureOption& option : family.options) {
      std::vector<std::string> words;
      for (const std::string& word : option.words) words.push_back(json_string(word));
      const bool number = words.empty();
      options.push_back(fmt::format(R"({{"name": {}, "summary": {}, "default": {}, )",
                                    json_string(option.name), json_string(option.summary),
                                    number ? option.initial : json_string(option.initial)));
      options.back() += number ? fmt::format(R"("min": {}, "max": {}}})", option.least, option.most)
                               : fmt::format(R"("words": [{}]}})", fmt::join(words, ", "));
    }
    all.push_back(fmt::format(R"({{"name": {}, "summary": {}, "options": [{}]}})",
                              json_string(family.name), json_string(family.summary),
                              fmt::join(options, ", ")));
  }
  return fmt::format("[{}]", fmt::join(all, ", "));
}

template <class View>
std::vector<View> views_of(const char* what, const tuckfold_tensor* tensors, std::size_t count) {
  std::vector<View> views;
  views.reserve(count);
  if (count > 0) given(what, "the weights", tensors);
  for (std::size_t i = 0; i < count; ++i) views.emplace_back(view_of(what, tensors + i));
  return views;
}

std::optional<TensorView> maybe_view(const char* what, const tuckfold_tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  return view_of(what, tensor);
}

}  // namespace
}  // namespace tuckfold::capi

using namespace tuckfold;
using namespace tuckfold::capi;

tuckfold_status tuckfold_structured_make(const char* text, int64_t in, int64_t out,
                                         tuckfold_structured** layer) {
  return guarded([&] {
    tuckfold_structured*& to = given("structure", "the place for the layer", layer);
    to = nullptr;
    StructuredLayer made(&given("structure", "the text", text), in, out);
    std::string json = layer_json(made);
    to = new tuckfold_structured{.layer = std::move(made), .json = std::move(json)};
  });
}

void tuckfold_structured_free(tuckfold_structured* layer) { delete layer; }

const char* tuckfold_structured_json(const tuckfold_structured* layer) {
  return layer == nullptr ? "null" : layer->json.c_str();
}

const char* tuckfold_structures_json(void) {
  static const std::string json = structures_json();
  return json.c_str();
}

int32_t tuckfold_structured_has_cuda(const tuckfold_structured* layer, int32_t dtype) {
  if (layer == nullptr || dtype < 0 || dtype > TUCKFOLD_BOOL) return 0;
  return layer->layer.has_cuda(static_cast<DType>(dtype)) ? 1 : 0;
}

size_t tuckfold_structured_workspace_bytes(const tuckfold_structured* layer, int32_t dtype,
                                           int64_t samples, int32_t backward) {
  std::size_t bytes = 0;
  guarded([&] {
    constexpr const char* kWhat = "workspace";
    bytes = given(kWhat, "the layer", layer)
                .layer.workspace_bytes(dtype_of(kWhat, dtype), samples, backward != 0);
  });
  return bytes;
}

tuckfold_status tuckfold_structured_step_memory(const tuckfold_structured* layer, int32_t dtype,
                                                int64_t samples, int32_t bias, int32_t states,
                                                int32_t threads, tuckfold_step_memory* memory) {
  return guarded([&] {
    constexpr const char* kWhat = "step_memory";
    tuckfold_step_memory& to = given(kWhat, "the place for the answer", memory);
    const StepMemory of =
        given(kWhat, "the layer", layer)
            .layer.step_memory(dtype_of(kWhat, dtype), samples,
                               {.bias = bias != 0, .states = states, .threads = threads});
    to = {of.weights, of.gradients, of.optimizer, of.saved, of.passing, of.workspace};
  });
}

tuckfold_status tuckfold_structured_forward(const tuckfold_structured* layer,
                                            const tuckfold_tensor* x,
                                            const tuckfold_tensor* weights, size_t count,
                                            const tuckfold_tensor* bias, const tuckfold_tensor* y,
                                            const tuckfold_options* options) {
  return guarded([&] {
    constexpr const char* kWhat = "forward";
    const tuckfold_options run = options_of(kWhat, options);
    const UseExecutor on({run.executor, run.executor_data});
    const auto views = views_of<ConstTensorView>(kWhat, weights, count);
    const auto bias_view = maybe_view(kWhat, bias);
    std::optional<ConstTensorView> read_bias;
    if (bias_view) read_bias.emplace(*bias_view);
    given(kWhat, "the layer", layer)
        .layer.forward(view_of(kWhat, x), views, read_bias ? &*read_bias : nullptr,
                       view_of(kWhat, y),
                       {.threads = run.threads,
                        .stream = run.stream,
                        .workspace = {static_cast<std::byte*>(run.workspace),
                                      run.workspace == nullptr ? 0 : run.workspace_bytes}});
  });
}

tuckfold_status tuckfold_structured_backward(
    const tuckfold_structured* layer, const tuckfold_tensor* x, const tuckfold_tensor* grad_y,
    const tuckfold_tensor* weights, size_t count, const tuckfold_tensor* grad_x,
    const tuckfold_tensor* grad_weights, const tuckfold_tensor* grad_bias,
    const tuckfold_options* options) {
  return guarded([&] {
    constexpr const char* kWhat = "backward";
    const tuckfold_options run = options_of(kWhat, options);
    const UseExecutor on({run.executor, run.executor_data});
    const auto views = views_of<ConstTensorView>(kWhat, weights, count);
    const auto places =
        views_of<TensorView>(kWhat, grad_weights, grad_weights == nullptr ? 0 : count);
    const auto gx = maybe_view(kWhat, grad_x), gb = maybe_view(kWhat, grad_bias);
    given(kWhat, "the layer", layer)
        .layer.backward(view_of(kWhat, x), view_of(kWhat, grad_y), views,
                        {.x = gx ? &*gx : nullptr, .weights = places, .bias = gb ? &*gb : nullptr},
                        {.threads = run.threads,
                         .stream = run.stream,
                         .workspace = {static_cast<std::byte*>(run.workspace),
                                       run.workspace == nullptr ? 0 : run.workspace_bytes}});
  });
}
