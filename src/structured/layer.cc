// The public face of structured layers: checks arguments, then runs them.
#include "structured/layer.h"

#include <array>
#include <string>
#include <vector>

#include "base/cuda/runtime.h"
#include "base/fail.h"
#include "structured/run.h"
#include "tuckfold/structured.h"

namespace tuckfold {

using structured::Layer;

StructuredLayer::StructuredLayer(std::string_view text, std::int64_t in, std::int64_t out) {
  const structured::Parsed parsed = structured::parse(text);
  constexpr std::int64_t kMostFeatures = std::int64_t{1} << 30;
  for (const auto& [name, size] : {std::pair{"in", in}, std::pair{"out", out}}) {
    if (size < 1 || size > kMostFeatures) {
      invalid("[structure] {} must be 1..{} features, got {}", name, kMostFeatures, size);
    }
  }
  auto layer = std::make_shared<Layer>(Layer{.family = parsed.family,
                                             .values = parsed.values,
                                             .text = structured::print(parsed),
                                             .in = in,
                                             .out = out});
  layer->declaration = parsed.family->declare(parsed.values, in, out);
  layer_ = std::move(layer);
}

const std::string& StructuredLayer::text() const { return layer_->text; }
std::int64_t StructuredLayer::in() const { return layer_->in; }
std::int64_t StructuredLayer::out() const { return layer_->out; }
std::span<const WeightInfo> StructuredLayer::weights() const { return layer_->declaration.weights; }

std::int64_t StructuredLayer::weight_count() const {
  std::int64_t count = 0;
  for (const WeightInfo& info : weights()) count += info.trained ? info.shape.elems() : 0;
  return count;
}
double StructuredLayer::flops(std::int64_t samples) const {
  return layer_->declaration.flops_per_sample * static_cast<double>(samples);
}
std::int64_t StructuredLayer::saved_bytes(DType dtype, std::int64_t samples) const {
  return samples * in() * static_cast<std::int64_t>(size_bytes(dtype));
}

StepMemory StructuredLayer::step_memory(DType dtype, std::int64_t samples,
                                        const StepOptions& options) const {
  if (dtype != DType::F32 && dtype != DType::F64 && dtype != DType::F16 && dtype != DType::BF16) {
    invalid("[step_memory] the dtype must be f32, f64, f16 or bf16, got {}", to_string(dtype));
  }
  constexpr std::int64_t kMostSamples = std::int64_t{1} << 30;
  if (samples < 0 || samples > kMostSamples) {
    invalid("[step_memory] samples must be 0..{}, got {}", kMostSamples, samples);
  }
  if (options.states < 0 || options.states > 8) {
    invalid("[step_memory] states must be 0..8 for each weight, got {}", options.states);
  }
  const auto size = static_cast<std::int64_t>(size_bytes(dtype));
  StepMemory memory;
  memory.gradients = (weight_count() + (options.bias ? out() : 0)) * size;
  memory.weights = memory.gradients;
  for (const WeightInfo& info : weights()) {
    if (!info.trained) {
      memory.weights += info.shape.elems() * static_cast<std::int64_t>(size_bytes(DType::I64));
    }
  }
  memory.optimizer = options.states * memory.gradients;
  memory.saved = saved_bytes(dtype, samples);
  memory.passing = samples * (in() + out()) * size;
  memory.workspace = structured::workspace_bytes(*layer_, dtype, samples, options.threads);
  return memory;
}

namespace {

// ---- checks -------------------------------------------------------------------------------------

template <class View>
void check_tensor(const char* what, const char* name, const View& tensor, DType dtype,
                  const Shape& shape, Device device) {
  if (tensor.dtype != dtype) {
    invalid("[{}] {} must be of {} as x is, got {}; convert it", what, name, to_string(dtype),
            to_string(tensor.dtype));
  }
  if (tensor.shape != shape) {
    invalid("[{}] {} must be {}, got {}", what, name, to_string(shape), to_string(tensor.shape));
  }
  if (tensor.device != device) {
    invalid("[{}] {} must be on the device of x; move it", what, name);
  }
  const Shape wanted = row_major_strides(shape);
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    if (shape.elems() > 0 && shape[axis] > 1 && tensor.strides[axis] != wanted[axis]) {
      invalid("[{}] {} must be row-major; make it contiguous", what, name);
    }
  }
  if (tensor.data == nullptr && shape.elems() > 0) invalid("[{}] {} has no memory", what, name);
}

structured::Job checked(const char* what, const Layer& layer, const ConstTensorView& x,
                        std::span<const ConstTensorView> weights, const ConstTensorView* bias,
                        const StructuredOptions& options) {
  if (x.dtype != DType::F32 && x.dtype != DType::F64 && x.dtype != DType::F16 &&
      x.dtype != DType::BF16) {
    invalid("[{}] x must be of f32, f64, f16 or bf16, got {}", what, to_string(x.dtype));
  }
  if (x.shape.rank() != 2 || x.shape[1] != layer.in) {
    invalid("[{}] x must be samples x {}, got {}", what, layer.in, to_string(x.shape));
  }
  if (options.threads < 0) invalid("[{}] threads must be 0 or more, got {}", what, options.threads);
  structured::Job job{.layer = &layer,
                      .dtype = x.dtype,
                      .samples = x.shape[0],
                      .x = x.data,
                      .weights = {},
                      .bias = bias == nullptr ? nullptr : bias->data,
                      .threads = options.threads};
  check_tensor(what, "x", x, x.dtype, x.shape, x.device);
  const auto& infos = layer.declaration.weights;
  if (weights.size() != infos.size()) {
    invalid("[{}] {} has {} weights, got {}", what, layer.text, infos.size(), weights.size());
  }
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const DType dtype = infos[i].trained ? x.dtype : DType::I64;
    check_tensor(what, infos[i].name.c_str(), weights[i], dtype, infos[i].shape, x.device);
    job.weights[i] = weights[i].data;
    if (infos[i].trained || x.device != Device::Cpu) continue;
    const auto* places = static_cast<const std::int64_t*>(weights[i].data);
    const std::int64_t count = infos[i].shape.elems();
    std::vector<bool> seen(static_cast<std::size_t>(count));
    for (std::int64_t k = 0; k < count; ++k) {
      if (places[k] < 0 || places[k] >= count || seen[static_cast<std::size_t>(places[k])]) {
        invalid("[{}] {} must have each of 0..{} once, got {} at {}", what, infos[i].name,
                count - 1, places[k], k);
      }
      seen[static_cast<std::size_t>(places[k])] = true;
    }
  }
  if (bias != nullptr) check_tensor(what, "bias", *bias, x.dtype, Shape{layer.out}, x.device);
  return job;
}

const structured::CudaKernel& cuda_kernel(const char* what, const Layer& layer, DType dtype) {
  const auto& kernel = layer.declaration.cuda;
  if (kernel == nullptr || !kernel->takes(dtype)) {
    fail(Errc::Unsupported,
         "[{}] {} has no CUDA kernel for {} features of {} in this build; move the tensors to the "
         "CPU",
         what, layer.text, layer.in, to_string(dtype));
  }
  return *kernel;
}

// The memory that is given, or such that lives as long as this.
struct Workspace {
  cuda::Memory own;
  std::byte* data;

  Workspace(const char* what, std::size_t bytes, const StructuredOptions& options)
      : own(options.workspace.data() != nullptr ? 0 : bytes, options.stream),
        data(options.workspace.data() != nullptr ? options.workspace.data() : own.data()) {
    if (options.workspace.data() != nullptr && options.workspace.size() < bytes) {
      invalid("[{}] the workspace must have {} bytes, got {}", what, bytes,
              options.workspace.size());
    }
  }
};

// On a device where nothing is to be summed.
void clear_gradients(const structured::BackwardJob& job, void* stream) {
  const auto& infos = job.layer->declaration.weights;
  const std::size_t each = size_bytes(job.dtype);
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (job.grad_weights[i] == nullptr) continue;
    const auto count = static_cast<std::size_t>(infos[i].shape.elems());
    cuda::fill(job.grad_weights[i], 0, count * each, stream);
  }
  if (job.grad_bias != nullptr) {
    cuda::fill(job.grad_bias, 0, static_cast<std::size_t>(job.layer->out) * each, stream);
  }
}

}  // namespace

bool StructuredLayer::has_cuda(DType dtype) const {
  const auto& kernel = layer_->declaration.cuda;
  return kernel != nullptr && kernel->takes(dtype);
}
std::size_t StructuredLayer::workspace_bytes(DType dtype, std::int64_t samples,
                                             bool backward) const {
  const auto& kernel = layer_->declaration.cuda;
  const bool none = kernel == nullptr || !kernel->takes(dtype) || samples == 0;
  return none ? 0 : kernel->workspace_bytes(dtype, samples, backward);
}

void StructuredLayer::forward(const ConstTensorView& x, std::span<const ConstTensorView> weights,
                              const ConstTensorView* bias, const TensorView& y,
                              const StructuredOptions& options) const {
  structured::ForwardJob job{checked("forward", *layer_, x, weights, bias, options), y.data};
  check_tensor("forward", "y", y, x.dtype, Shape{job.samples, out()}, x.device);
  if (x.device == Device::Cuda) {
    const structured::CudaKernel& kernel = cuda_kernel("forward", *layer_, x.dtype);
    if (job.samples == 0) return;
    const Workspace workspace("forward", kernel.workspace_bytes(x.dtype, job.samples, false),
                              options);
    kernel.forward(job, workspace.data, options.stream);
  } else if (job.samples > 0) {
    structured::run_forward(job);
  }
}

void StructuredLayer::backward(const ConstTensorView& x, const ConstTensorView& grad_y,
                               std::span<const ConstTensorView> weights,
                               const StructuredGradients& gradients,
                               const StructuredOptions& options) const {
  structured::BackwardJob job{checked("backward", *layer_, x, weights, nullptr, options),
                              grad_y.data};
  check_tensor("backward", "grad_y", grad_y, x.dtype, Shape{job.samples, out()}, x.device);
  if (gradients.x != nullptr) {
    check_tensor("backward", "grad_x", *gradients.x, x.dtype, x.shape, x.device);
    job.grad_x = gradients.x->data;
  }
  const auto& infos = layer_->declaration.weights;
  if (!gradients.weights.empty() && gradients.weights.size() != infos.size()) {
    invalid("[backward] {} has {} weights, got places for {} gradients", text(), infos.size(),
            gradients.weights.size());
  }
  for (std::size_t i = 0; i < gradients.weights.size(); ++i) {
    const TensorView& place = gradients.weights[i];
    if (!infos[i].trained || place.data == nullptr) continue;
    check_tensor("backward", ("grad_" + infos[i].name).c_str(), place, x.dtype, infos[i].shape,
                 x.device);
    job.grad_weights[i] = place.data;
  }
  if (gradients.bias != nullptr) {
    check_tensor("backward", "grad_bias", *gradients.bias, x.dtype, Shape{out()}, x.device);
    job.grad_bias = gradients.bias->data;
  }
  if (x.device == Device::Cpu) return structured::run_backward(job);
  const structured::CudaKernel& kernel = cuda_kernel("backward", *layer_, x.dtype);
  if (job.samples == 0) return clear_gradients(job, options.stream);
  const Workspace workspace("backward", kernel.workspace_bytes(x.dtype, job.samples, true),
                            options);
  kernel.backward(job, workspace.data, options.stream);
}

std::vector<double> StructuredLayer::to_dense(std::span<const ConstTensorView> weights) const {
  std::vector<std::vector<double>> held;
  std::vector<ConstTensorView> wide;
  const auto infos = this->weights();
  if (weights.size() != infos.size()) {
    invalid("[to_dense] {} has {} weights, got {}", text(), infos.size(), weights.size());
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const ConstTensorView& weight = weights[i];
    if (!infos[i].trained || weight.dtype == DType::F64) {
      wide.push_back(weight);
      continue;
    }
    if (weight.dtype != DType::F32) {
      invalid("[to_dense] {} must be of f32 or f64, got {}; convert it", infos[i].name,
              to_string(weight.dtype));
    }
    check_tensor("to_dense", infos[i].name.c_str(), weight, DType::F32, infos[i].shape,
                 Device::Cpu);
    const auto* from = static_cast<const float*>(weight.data);
    held.emplace_back(from, from + infos[i].shape.elems());
    wide.emplace_back(held.back().data(), DType::F64, infos[i].shape);
  }
  // What the unit vectors become are the columns.
  const auto columns = static_cast<std::size_t>(in()), rows = static_cast<std::size_t>(out());
  std::vector<double> unit(columns * columns), image(columns * rows), dense(rows * columns);
  for (std::size_t i = 0; i < columns; ++i) unit[i * columns + i] = 1;
  forward(ConstTensorView(unit.data(), DType::F64, {in(), in()}), wide, nullptr,
          TensorView(image.data(), DType::F64, {in(), out()}));
  for (std::size_t i = 0; i < columns; ++i) {
    for (std::size_t j = 0; j < rows; ++j) dense[j * columns + i] = image[i * rows + j];
  }
  return dense;
}

std::span<const StructureInfo> structures() {
  static const std::vector<StructureInfo> all = [] {
    std::vector<StructureInfo> infos;
    for (const structured::Family* family : structured::families()) {
      StructureInfo& info = infos.emplace_back();
      info.name = family->name;
      info.summary = family->summary;
      for (const structured::OptionInfo& option : family->options) {
        StructureOption& row = info.options.emplace_back();
        row = {.name = std::string(option.name),
               .summary = std::string(option.summary),
               .initial = option.words.empty() ? std::to_string(option.initial)
                                               : std::string(option.words[option.initial]),
               .least = option.least,
               .most = option.most,
               .words = {option.words.begin(), option.words.end()}};
      }
    }
    return infos;
  }();
  return all;
}

}  // namespace tuckfold
