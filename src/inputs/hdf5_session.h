// Shared by reading and writing HDF5: handles that close themselves, and a lock around the library,
// which is not thread-safe.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

namespace tuckfold::hdf5 {

inline std::mutex& library() {
  static std::mutex mutex;
  return mutex;
}

// What libhdf5 counts: files, datasets, spaces, types.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

// The innermost error message of the library, which it would otherwise print.
inline std::string complaint() {
  std::string text = "libhdf5 gives no reason";
  const auto note = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  ::H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, note, &text);
  return text;
}

// During its lifetime this thread has the library to itself, and the library prints nothing.
class Session {
 public:
  Session() : lock_(library()) {
    // At exit the library would complain, on standard error, of what it could not close in damaged
    // files. Files that are written are closed by their handles.
    [[maybe_unused]] static const herr_t quiet = ::H5dont_atexit();
    ::H5Eget_auto2(H5E_DEFAULT, &printer_, &data_);
    ::H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { ::H5Eset_auto2(H5E_DEFAULT, printer_, data_); }

 private:
  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace tuckfold::hdf5
