// What passes of a model repeat, as Python has found it: where the saved tensors are that are stored
// differently, what they must look like, and what to do with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch/hooks/kinds.h"

namespace tuckfold::hooks {

// All of a tensor but its values.
struct Meta {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;

  bool operator==(const Meta& other) const = default;
  bool fits(const at::Tensor& x) const;  // with its place in the storage
  bool fits_but_for_place(const at::Tensor& x) const;
  at::Tensor empty() const;
  at::Tensor view_of(const at::Tensor& base) const;
  at::Tensor view_of(c10::Storage storage) const;
};

enum class FormKind {
  kNothing,
  kBits,
  kAbove,
  kRegions,
  kNarrow,
  kCodec,
  kLossy,
  kRecompute,
  kMask
};

struct FormSpec {
  FormKind kind = FormKind::kNothing;
  std::string codec;                 // of kCodec and kLossy
  std::array<double, 3> limits{};    // of kRegions: low, high, middle
  at::ScalarType dtype = at::kByte;  // of kNarrow
  bool is_row = false;     // kLossy: the storage as one row, else the first view that fills it
  int mask = -1;           // kLossy: the form with the bits of a ReLU, if zeros are made by it
  std::int64_t group = 0;  // kLossy: of block_quant, whose headers tell whether values were finite
  bool changes = false;    // kLossy: whether the codec is not exact
};

struct Slot {
  std::size_t role = 0, group = 0, form = 0;
  Meta meta;
  bool is_direct = false, is_reshaped = false, is_output = false, is_copy = false;
  bool is_value = false;  // whether backward reads its values, not less
  bool fills = false;     // whether it has all of the storage
  std::string what;       // for messages: "input of ConvolutionBackward0"
  std::string origin;     // the node that made it, empty for leaves
  std::int64_t output_nr = 0;
};

struct Target {
  int output = 0;
  std::vector<int> path;
  const Kind* kind = nullptr;
  std::vector<double> signature;
  std::vector<Slot> slots;
  bool makes_sums = false;  // of attention, where q or k may be decoded
};

enum class Code {
  kRelu,
  kGelu,
  kSilu,
  kHardswish,
  kMish,
  kHardtanh,
  kLeakyRelu,
  kAdd,
  kMul,
  kDropout,
  kTo,
  kView,
  kLayerNorm,
  kRmsNorm,
  kGroupNorm,
  kNativeBatchNorm,
  kCudnnBatchNorm,
  kNormalize,
  kNormalizeRows,
  kAddmm,
  kMm,
};

// Whether it takes so long that what it made is shared, not made for each reader.
constexpr bool is_product(Code code) { return code == Code::kAddmm || code == Code::kMm; }

// An argument of an operator that is run again.
struct Argument {
  enum Place {
    kChild,      // what another operator makes, which made the node's input
    kSaved,      // what the node saved
    kInput,      // the node's input, as another node saved it
    kNested,     // the node's input, which is itself made again
    kParameter,  // of a module, and in no node
  } place = kChild;
  int child = 0;
  int argument = 0;        // of the node
  std::size_t target = 0;  // the node that saved it
  std::size_t role = 0;
  bool is_output = false;
  bool is_leaf = false;  // whether no operator made it
  bool is_copied = false;
  bool is_shared = false;  // whether what is made again there stays for the node that saved it
  int parameter = -1;      // kParameter, and what a module must have for kSaved
  Meta meta;
};

struct Operator {
  Code code = Code::kRelu;
  std::vector<double> constants;
  const Kind* kind = nullptr;
  std::vector<double> signature;
  std::vector<std::int64_t> out_sizes;
  at::ScalarType out_dtype = at::kFloat;
  std::vector<Argument> arguments;
};

struct Recipe {
  std::size_t target = 0;           // the node that made the storage
  std::vector<Operator> operators;  // the last one first
};

struct Group {
  std::size_t count = 0;
  std::size_t nbytes = 0;
  std::uint64_t tensor = 0;  // which of the pass, for the seed of its codec
  std::vector<FormSpec> forms;
  std::optional<Recipe> recipe;
  // Ends of modules, since its last tensor was taken, until nobody else held it in an earlier pass.
  std::atomic<int> first{0};
};

struct Step {
  std::int64_t module = 0;
  std::vector<std::size_t> targets;
};

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

struct Program : torch::CustomClassHolder {
  std::vector<Target> targets;
  std::vector<Step> steps;
  std::vector<std::size_t> last;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<WeakTensor> parameters;  // of modules, by number
  bool is_lossy = false;
  at::Device device = at::kCPU;  // of the model

  // Tensors that recipes copy: all at once, since a call for each would take longer than the copies.
  std::mutex mutex;
  std::unordered_map<at::TensorImpl*, WeakTensor> copied;
};

}  // namespace tuckfold::hooks
