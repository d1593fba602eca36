// The contents of the C API's handles, and the conversion of exceptions to statuses.
#pragma once

#include <atomic>
#include <new>
#include <string>

#include "base/fail.h"
#include "tuckfold/c.h"
#include "tuckfold/codec.h"

struct tuckfold_spec {
  tuckfold::CodecSpec spec;
  std::string text, json;
};

struct tuckfold_plan {
  tuckfold::Plan plan;
  tuckfold_layout layout{};
  std::atomic<int> references{1};
};

namespace tuckfold::capi {

inline constexpr const char* kNoMemory = "there is not enough memory for this";

struct LastError {
  tuckfold_status status = TUCKFOLD_OK;
  std::string message;
  const char* text = "";

  tuckfold_status set(Errc code, const char* what) noexcept { return set(exit_code(code), what); }
  tuckfold_status set(tuckfold_status code, const char* what) noexcept {
    status = code;
    try {
      message = what;
      text = message.c_str();
    } catch (const std::bad_alloc&) {
      text = kNoMemory;
    }
    return status;
  }
};
extern thread_local LastError t_last;

// Runs code that may throw; an exception becomes the thread's last error.
template <class Body>
tuckfold_status guarded(Body&& body) noexcept {
  try {
    body();
    return TUCKFOLD_OK;
  } catch (const Error& error) {
    return t_last.set(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return t_last.set(Errc::Io, kNoMemory);
  } catch (const std::exception& error) {
    return t_last.set(Errc::Internal, error.what());
  } catch (...) {
    return t_last.set(Errc::Internal, "an exception of unknown type");
  }
}

// Null pointers are mistakes of the caller that a C compiler does not see.
template <class T>
T& given(const char* what, const char* name, T* pointer) {
  if (pointer == nullptr) invalid("[{}] {} must not be NULL", what, name);
  return *pointer;
}

// A dtype of the caller's, checked.
DType dtype_of(const char* what, std::int32_t dtype);
// A tensor of the caller's, checked.
TensorView view_of(const char* what, const tuckfold_tensor* tensor);

// The caller's options; they are shorter if its header is older. Fields that this library does not
// know must be zero.
tuckfold_options options_of(const char* what, const tuckfold_options* given_options);

}  // namespace tuckfold::capi
