#include "codec/zfp/zfp_library.h"

#include <dlfcn.h>

#include "base/fail.h"

namespace tuckfold {
namespace {

constexpr const char* kName = "libzfp.so.1";

ZfpLibrary load() {
  void* library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(Errc::Unsupported, "[zfp] the codec needs {}; install it, on Debian the package libzfp1",
         kName);
  }
  return ZfpLibrary([library](const char* name) {
    void* found = ::dlsym(library, name);
    if (found == nullptr) {
      fail(Errc::Unsupported, "[zfp] the installed {} has no {}; install zfp 1.0", kName, name);
    }
    return found;
  });
}

}  // namespace

const ZfpLibrary& zfp_library() {
  static const ZfpLibrary kLibrary = load();
  return kLibrary;
}

}  // namespace tuckfold
