// A function as torch calls an operator: with all arguments, and room for what it returns, on a stack.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "torch/call.h"
#include "tuckfold/c.h"

namespace tuckfold::torch_ops {

// torch 2.11's own conversion of a str leaks it (new std::string, never deleted), so arguments are
// taken from the stack here.
class Text {
 public:
  explicit Text(StableIValue value) : handle_(::torch::stable::detail::to<StringHandle>(value)) {}
  ~Text() { torch_delete_string(handle_); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string_view view() const {
    const char* data = nullptr;
    std::size_t length = 0;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle_, &data));
    TORCH_ERROR_CODE_CHECK(torch_string_length(handle_, &length));
    return {data, length};
  }

 private:
  StringHandle handle_;
};

// The lengths of axes.
struct Axes {
  explicit Axes(StableIValue value) {
    const auto list = ::torch::stable::detail::to<StableListHandle>(value);
    const std::unique_ptr<StableListOpaque, AOTITorchError (*)(StableListHandle)> owner(
        list, torch_delete_list);
    std::size_t count = 0;
    TORCH_ERROR_CODE_CHECK(torch_list_size(list, &count));
    rank = static_cast<std::int32_t>(count);
    for (std::size_t i = 0; i < std::min<std::size_t>(count, TUCKFOLD_MAX_RANK); ++i) {
      StableIValue length = 0;
      TORCH_ERROR_CODE_CHECK(torch_list_get_item(list, i, &length));
      lengths[i] = ::torch::stable::detail::to<std::int64_t>(length);
    }
  }
  std::span<const std::int64_t> all() const { return {lengths, static_cast<std::size_t>(rank)}; }

  std::int32_t rank = 0;
  std::int64_t lengths[TUCKFOLD_MAX_RANK];
};

// What owns an argument during a call.
template <class T>
class Argument {
 public:
  explicit Argument(StableIValue on_stack) : value_(::torch::stable::detail::to<T>(on_stack)) {}
  const T& get() const { return value_; }

 private:
  T value_;
};

template <>
class Argument<std::string_view> : Text {
 public:
  using Text::Text;
  std::string_view get() const { return view(); }
};

template <>
class Argument<Axes> : Axes {
 public:
  using Axes::Axes;
  const Axes& get() const {  // refused here, where all arguments have an owner
    if (rank > TUCKFOLD_MAX_RANK) {
      refuse("unpack", "a tensor has at most 64 axes, got " + std::to_string(rank));
    }
    return *this;
  }
};

// boxed<f> goes to library.impl(): arguments in the order of the schema, which the call owns.
template <auto kFunction>
struct Boxed;

template <class Result, class... Args, Result (*kFunction)(Args...)>
struct Boxed<kFunction> {
  static void call(StableIValue* stack, std::uint64_t, std::uint64_t) {
    tuckfold_clear_error();
    apply(stack, std::index_sequence_for<Args...>{});
  }

 private:
  template <std::size_t... kI>
  static void apply(StableIValue* stack, std::index_sequence<kI...>) {
    const std::tuple<Argument<std::remove_cvref_t<Args>>...> arguments(stack[kI]...);
    if constexpr (std::is_void_v<Result>) {
      kFunction(std::get<kI>(arguments).get()...);
    } else {
      put(stack, kFunction(std::get<kI>(arguments).get()...));
    }
  }

  template <class T>
  static void put(StableIValue* stack, const T& result) {
    stack[0] = ::torch::stable::detail::from(result);
  }
  template <class A, class B>
  static void put(StableIValue* stack, const std::tuple<A, B>& result) {
    stack[0] = ::torch::stable::detail::from(std::get<0>(result));
    stack[1] = ::torch::stable::detail::from(std::get<1>(result));
  }
};

template <auto kFunction>
inline constexpr auto* boxed = &Boxed<kFunction>::call;

}  // namespace tuckfold::torch_ops
