// What Python calls: a class that is filled once for each program, and plain functions for passes,
// since ctypes takes less time than torch's calls of operators and methods.
//
// Tensors come to the plain functions as the addresses that `Tensor._cdata` gives.
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>

#include "torch/hooks/pass.h"

namespace tuckfold::hooks {
namespace {

using Ints = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

std::vector<std::size_t> indices(const Ints& numbers) {
  std::vector<std::size_t> found;
  for (const std::int64_t number : numbers) found.push_back(index(number));
  return found;
}

// like: has the dtype and the device.
Meta meta_of(Ints sizes, Ints strides, std::int64_t offset, const at::Tensor& like) {
  return {std::move(sizes), std::move(strides), offset, like.scalar_type(), like.device()};
}

// Bits of numbers that Python packs.
bool has(std::int64_t flags, int bit) { return (flags >> bit & 1) != 0; }

class Filled : public Program {
 public:
  Filled(std::int64_t group_count, bool lossy, const at::Tensor& like) {
    for (std::int64_t i = 0; i < group_count; ++i) groups.push_back(std::make_unique<Group>());
    is_lossy = lossy;
    device = like.device();
  }

  // Its number, or -1 where the kind is not known.
  std::int64_t add_target(const std::string& kind, std::int64_t output, const Ints& path,
                          const Doubles& signature) {
    Target target{.output = static_cast<int>(output), .kind = kind_named(kind)};
    if (target.kind == nullptr) return -1;
    for (const std::int64_t step : path) target.path.push_back(static_cast<int>(step));
    target.signature = signature;
    targets.push_back(std::move(target));
    return static_cast<std::int64_t>(targets.size()) - 1;
  }

  // Whether its role is known. flags: direct, reshaped, output, copy, value, fills.
  bool add_slot(std::int64_t number, const std::string& role, std::int64_t group, std::int64_t form,
                Ints sizes, Ints strides, std::int64_t offset, const at::Tensor& like,
                std::int64_t flags, const std::string& origin, std::int64_t output_nr) {
    Target& target = targets.at(index(number));
    const int found = target.kind->role(role);
    if (found < 0) return false;
    target.slots.push_back({.role = index(found),
                            .group = index(group),
                            .form = index(form),
                            .meta = meta_of(std::move(sizes), std::move(strides), offset, like),
                            .is_direct = has(flags, 0),
                            .is_reshaped = has(flags, 1),
                            .is_output = has(flags, 2),
                            .is_copy = has(flags, 3),
                            .is_value = has(flags, 4),
                            .fills = has(flags, 5),
                            .what = role + " of " + target.kind->name,
                            .origin = origin,
                            .output_nr = output_nr});
    groups.at(index(group))->count++;
    return true;
  }

  // Whether the node is an attention.
  bool make_sums(std::int64_t number) {
    Target& target = targets.at(index(number));
    target.makes_sums = target.kind->attention != nullptr;
    return target.makes_sums;
  }

  void set_group(std::int64_t number, std::int64_t nbytes, std::int64_t first,
                 std::int64_t tensor) {
    groups.at(index(number))->nbytes = index(nbytes);
    groups.at(index(number))->first = static_cast<int>(first);
    groups.at(index(number))->tensor = static_cast<std::uint64_t>(tensor);
  }

  void add_form(std::int64_t number, std::int64_t kind, const std::string& codec,
                const Doubles& limits, const at::Tensor& like, bool is_row, std::int64_t mask,
                std::int64_t group, bool changes) {
    FormSpec spec{.kind = static_cast<FormKind>(kind),
                  .codec = codec,
                  .dtype = like.scalar_type(),
                  .is_row = is_row,
                  .mask = static_cast<int>(mask),
                  .group = group,
                  .changes = changes};
    std::copy_n(limits.begin(), std::min<std::size_t>(3, limits.size()), spec.limits.begin());
    groups.at(index(number))->forms.push_back(std::move(spec));
  }

  // The last operator of a recipe comes first.
  bool add_operator(std::int64_t number, std::int64_t target, std::int64_t code,
                    const Doubles& constants, const std::string& kind, const Doubles& signature,
                    const Ints& out_sizes, const at::Tensor& out_like) {
    Group& group = *groups.at(index(number));
    if (!group.recipe.has_value()) group.recipe.emplace().target = index(target);
    Operator op{.code = static_cast<Code>(code),
                .constants = constants,
                .kind = kind_named(kind),
                .signature = signature,
                .out_sizes = out_sizes,
                .out_dtype = out_like.scalar_type()};
    if (op.kind == nullptr) return false;
    group.recipe->operators.push_back(std::move(op));
    return true;
  }

  // Of an operator of a recipe. target: the node that saved it, or -1 for the operator's own.
  // flags: output, leaf, copied, shared.
  bool add_argument(std::int64_t number, std::int64_t op_number, std::int64_t place,
                    std::int64_t child, std::int64_t argument, std::int64_t target,
                    const std::string& role, std::int64_t flags, std::int64_t parameter, Ints sizes,
                    Ints strides, const at::Tensor& like) {
    Operator& op = groups.at(index(number))->recipe.value().operators.at(index(op_number));
    Argument arg{.place = static_cast<Argument::Place>(place),
                 .child = static_cast<int>(child),
                 .argument = static_cast<int>(argument),
                 .is_output = has(flags, 0),
                 .is_leaf = has(flags, 1),
                 .is_copied = has(flags, 2),
                 .is_shared = has(flags, 3),
                 .parameter = static_cast<int>(parameter),
                 .meta = meta_of(std::move(sizes), std::move(strides), 0, like)};
    const bool has_role = arg.place == Argument::kSaved || arg.place == Argument::kInput ||
                          arg.place == Argument::kNested;
    if (has_role) {
      const Kind* kind = target < 0 ? op.kind : targets.at(index(target)).kind;
      const int found = kind->role(role);
      if (found < 0) return false;
      arg.role = index(found);
      arg.target = target < 0 ? 0 : index(target);
    }
    op.arguments.push_back(std::move(arg));
    return true;
  }

  std::int64_t add_parameter(const at::Tensor& parameter) {
    parameters.emplace_back(parameter.getIntrusivePtr());
    return static_cast<std::int64_t>(parameters.size()) - 1;
  }

  void add_step(std::int64_t module, const Ints& of) { steps.push_back({module, indices(of)}); }
  void set_last(const Ints& of) { last = indices(of); }
  std::int64_t address() { return reinterpret_cast<std::int64_t>(static_cast<Program*>(this)); }
};

TORCH_LIBRARY(tuckfold_hooks, library) {
  library.class_<Filled>("Program")
      .def(torch::init<std::int64_t, bool, const at::Tensor&>())
      .def("add_target", &Filled::add_target)
      .def("add_slot", &Filled::add_slot)
      .def("make_sums", &Filled::make_sums)
      .def("set_group", &Filled::set_group)
      .def("add_form", &Filled::add_form)
      .def("add_operator", &Filled::add_operator)
      .def("add_argument", &Filled::add_argument)
      .def("add_parameter", &Filled::add_parameter)
      .def("add_step", &Filled::add_step)
      .def("set_last", &Filled::set_last)
      .def("address", &Filled::address);
}

at::Tensor tensor_at(void* address) {
  if (address == nullptr) return {};
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(
      static_cast<at::TensorImpl*>(address)));
}

std::vector<at::Tensor> tensors_at(void* const* addresses, std::int64_t count) {
  std::vector<at::Tensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) tensors.push_back(tensor_at(addresses[i]));
  return tensors;
}

Pass* pass_of(void* pass) { return static_cast<Pass*>(pass); }

const Ints& list_of(Pass* pass, int which) { return which == 0 ? pass->asked : pass->not_finite; }

}  // namespace
}  // namespace tuckfold::hooks

#define TUCKFOLD_HOOKS_API extern "C" __attribute__((visibility("default")))
using namespace tuckfold::hooks;

TUCKFOLD_HOOKS_API void* tuckfold_hooks_begin(void* program, std::int64_t seed,
                                              const std::int64_t* kept, std::int64_t count) {
  try {
    auto own = c10::intrusive_ptr<Program>::reclaim_copy(static_cast<Program*>(program));
    return new Pass(std::move(own), seed, {kept, static_cast<std::size_t>(count)});
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Each of these says whether the pass goes as the program says so far.
TUCKFOLD_HOOKS_API int tuckfold_hooks_ended(void* pass, std::int64_t module, void* output) {
  const at::Tensor tensor = tensor_at(output);
  pass_of(pass)->ended(module, {&tensor, 1});
  return pass_of(pass)->differs.empty() ? 1 : 0;
}

TUCKFOLD_HOOKS_API int tuckfold_hooks_ended_many(void* pass, std::int64_t module,
                                                 void* const* outputs, std::int64_t count) {
  pass_of(pass)->ended(module, tensors_at(outputs, count));
  return pass_of(pass)->differs.empty() ? 1 : 0;
}

TUCKFOLD_HOOKS_API int tuckfold_hooks_finish(void* pass, void* const* outputs, std::int64_t count) {
  return pass_of(pass)->finish(tensors_at(outputs, count)) ? 1 : 0;
}

TUCKFOLD_HOOKS_API const char* tuckfold_hooks_differs(void* pass) {
  return pass_of(pass)->differs.c_str();
}

TUCKFOLD_HOOKS_API const char* tuckfold_hooks_error(void* pass) {
  return pass_of(pass)->error.c_str();
}

TUCKFOLD_HOOKS_API std::int64_t tuckfold_hooks_count(void* pass, int which) {
  return which == 0 ? pass_of(pass)->hooked : pass_of(pass)->stored;
}

// Groups: 0 that `answer` tells of, 1 that were kept, since their values were not finite.
TUCKFOLD_HOOKS_API std::int64_t tuckfold_hooks_list(void* pass, int which, std::int64_t* out) {
  const auto& list = list_of(pass_of(pass), which);
  if (out != nullptr) std::ranges::copy(list, out);
  return static_cast<std::int64_t>(list.size());
}

TUCKFOLD_HOOKS_API int tuckfold_hooks_answer(void* pass, void* out) {
  try {
    pass_of(pass)->answer(tensor_at(out));
    return 1;
  } catch (const std::exception& failure) {
    pass_of(pass)->error = failure.what();
    return 0;
  }
}

TUCKFOLD_HOOKS_API void tuckfold_hooks_end(void* pass) { delete pass_of(pass); }
