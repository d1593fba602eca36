// A pass that repeats an earlier one: it takes the saved tensors that its program names, no others.
//
// What is found is compared with the program at every step. Whatever differs is left as it is, and
// the next pass is watched by Python again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch/hooks/saved.h"

namespace tuckfold::hooks {

class Pass {
 public:
  // seed: of codecs, for this pass. kept: groups that are left alone.
  Pass(c10::intrusive_ptr<Program> program, std::int64_t seed, std::span<const std::int64_t> kept);

  // A module has returned these. Nothing that goes wrong here reaches the model.
  void ended(std::int64_t module, std::span<const at::Tensor> outputs);
  // Ends the pass; whether it went as the program says.
  bool finish(std::span<const at::Tensor> outputs);

  // Writes whether each group of `asked` has values that are not finite.
  void answer(at::Tensor out);

  std::string differs;                   // what was found to differ from the program
  std::string error;                     // what went wrong
  std::vector<std::int64_t> asked;       // groups on a GPU, of which `answer` tells
  std::vector<std::int64_t> not_finite;  // on the CPU, and kept therefore
  int hooked = 0, stored = 0;            // tensors

 private:
  enum class Found { kYes, kNo, kLater };

  void take_all(std::span<const std::size_t> targets, std::span<const at::Tensor> outputs,
                bool final);
  void take(std::size_t number, std::span<const at::Tensor> outputs);
  void hook(const std::shared_ptr<Node>& node, const Kind& kind, const Slot& slot);
  void hook_sums(const std::shared_ptr<Node>& node, const Kind& kind);
  bool is_done(std::size_t number, bool final);
  bool store(std::size_t number, const std::vector<std::shared_ptr<Handle>>& handles);
  bool store_lossy(std::size_t number, const std::vector<std::shared_ptr<Handle>>& handles,
                   std::vector<std::shared_ptr<const Form>>& forms);
  bool is_as_made(const Node& node, const Kind& kind,
                  const std::vector<std::shared_ptr<Handle>>& handles);
  Found recompute(std::size_t number, const std::vector<std::shared_ptr<Handle>>& handles,
                  std::vector<std::shared_ptr<const Form>>& forms);
  Found build(const Recipe& recipe, std::size_t number, const std::shared_ptr<Node>& node,
              std::vector<Instance::Leaf>& leaves);
  Found leaf(const Argument& arg, const std::shared_ptr<Node>& node, Instance::Leaf& out);
  Found saved_leaf(const Argument& arg, const std::shared_ptr<Node>& node, Instance::Leaf& out);
  Found input_leaf(const Argument& arg, const torch::autograd::Edge& edge, Instance::Leaf& out);
  Found kept_leaf(const Argument& arg, const at::Tensor& x, Instance::Leaf& out);
  std::shared_ptr<Handle> taken(const SavedVariable* saved) const;
  at::Tensor copied(const at::Tensor& x);
  std::int64_t seed_of(const Group& group) const;

  struct Copy {
    at::Tensor original, copy;
    std::uint32_t version;
    const void* address;
  };

  c10::intrusive_ptr<Program> program_;
  std::int64_t stream_, seed_;
  std::size_t at_ = 0;
  std::vector<char> kept_;
  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<std::shared_ptr<Record>> records_;
  std::vector<std::size_t> pending_;
  std::vector<int> looks_;  // at a group since its last tensor was taken
  std::unordered_map<const SavedVariable*, std::weak_ptr<Handle>> taken_;
  std::unordered_map<at::TensorImpl*, Copy> copies_;
  bool has_copies_ = false;
  std::vector<at::Tensor> witnesses_;
};

// The stream that work on a device is queued in now.
std::int64_t stream_of(at::Device device);

}  // namespace tuckfold::hooks
