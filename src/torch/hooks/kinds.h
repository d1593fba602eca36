// The nodes of autograd that are known here: what they saved, by name, and the numbers on which their
// backward depends.
//
// The names are those of Python's attributes: `_saved_result` is the role "result". This header and
// all that follow use torch's own C++ API, which changes from version to version.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace tuckfold::hooks {

using ::torch::autograd::Node;
using ::torch::autograd::SavedVariable;

// The numbers of fused attention, and its operator, which makes the output and sums of exponentials.
struct Attention {
  enum Role : std::size_t { kQuery, kKey, kValue, kOutput, kSums, kMask };  // of its kinds
  enum Result : std::size_t { kMadeOutput, kMadeSums };
  using Made = std::array<at::Tensor, 2>;
  using Make = Made (*)(const Attention&, const std::vector<at::Tensor>& values,
                        const std::optional<at::Tensor>& mask);
  bool is_causal = false;
  std::optional<double> scale;
  Make make = nullptr;
  bool drops = false;  // what cannot be drawn again
};

struct Kind {
  std::string name;
  const std::type_info* type = nullptr;
  bool is_view = false;     // whether its output looks into the storage of its input
  bool is_reshape = false;  // and has all of it in the same order
  bool makes_new = false;   // whether another operator may overwrite its output
  std::vector<std::pair<std::string, std::function<SavedVariable*(Node&)>>> roles;
  // Numbers that a rule or a recipe reads, lists with their length first.
  std::function<void(Node&, std::vector<double>&)> constants;
  std::function<Attention(const Node&)> attention;  // empty: it is none

  SavedVariable* saved(Node& node, std::size_t role) const { return roles[role].second(node); }
  int role(std::string_view name) const;  // -1: it has none
};

// The kind of a node, or null.
const Kind* kind_of(const Node& node);
const Kind* kind_named(std::string_view name);

// All numbers of a node that are compared with those of the pass that was recorded: which of its
// inputs have gradients, and `Kind::constants`.
void signature_of(const Kind& kind, Node& node, std::vector<double>& out);

}  // namespace tuckfold::hooks
