// Plans of the library, for operators.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "torch/call.h"
#include "tuckfold/c.h"

namespace tuckfold::torch_ops {

// The library's plan for a spec, a dtype and a shape, which it keeps for the next call.
class Plan {
 public:
  Plan(std::string_view spec, std::int32_t dtype, std::span<const std::int64_t> shape) {
    if (spec.find('\0') != std::string_view::npos) refuse("codec", "a spec has no NUL characters");
    check(tuckfold_plan_get(spec.data(), dtype, static_cast<std::int32_t>(shape.size()),
                            shape.data(), &plan_));
  }
  Plan(std::string_view spec, const tuckfold_tensor& tensor)
      : Plan(spec, tensor.dtype, {tensor.shape, static_cast<std::size_t>(tensor.rank)}) {}
  Plan(Plan&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { tuckfold_plan_release(plan_); }

  const tuckfold_plan* get() const { return plan_; }
  const tuckfold_layout& layout() const { return *tuckfold_plan_layout(plan_); }

 private:
  tuckfold_plan* plan_ = nullptr;
};

}  // namespace tuckfold::torch_ops
