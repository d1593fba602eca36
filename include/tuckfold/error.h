// Five kinds of errors. Every failure of the library is thrown as an Error.
//
//   try {
//     pack(spec, input, packed);
//   } catch (const tuckfold::Error& error) {
//     std::cerr << error.what() << '\n';   // "[pack] keep must be 1..8 for block=8, got 9"
//     return exit_code(error.code());      // 2
//   }
#pragma once

#include <stdexcept>
#include <string>

#include "tuckfold/export.h"

namespace tuckfold {

enum class Errc : unsigned char {
  InvalidArgument,  // the call cannot be satisfied
  CorruptData,      // bytes truncated, sizes that do not fit
  Unsupported,      // valid, but not here
  Io,               // the system refused
  Internal,         // a bug of ours
};

class TUCKFOLD_API Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

// The process exit code that a command line tool gives for an error: 2, 3, 4, 5 or 70.
constexpr int exit_code(Errc code) noexcept {
  switch (code) {
    case Errc::InvalidArgument: return 2;
    case Errc::CorruptData: return 3;
    case Errc::Unsupported: return 4;
    case Errc::Io: return 5;
    case Errc::Internal: break;
  }
  return 70;
}

}  // namespace tuckfold
