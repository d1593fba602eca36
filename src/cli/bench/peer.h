// Other people's compressors, loaded at run time from what is installed or named: nothing of theirs
// is compiled in, so prototypes are declared by hand and every symbol is looked up.
//
//   PeerRequest request = PeerRequest::parse("sz3=/opt/lib/libSZ3c.so@1e-3");
//   for (auto& bench_target : peer_targets(request, array, {}, out, 2)) …
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/bench_target.h"

namespace tuckfold::cli {

// NAME[=PATH][@SETTING,…]: a setting is zfp's bits per value, or SZ's error bound relative to the
// range of the data.
struct PeerRequest {
  std::string name, path;
  std::vector<double> settings;

  static PeerRequest parse(std::string_view text);
};

// One target per setting. Without settings, zfp takes `rates` if there are any.
std::vector<std::unique_ptr<BenchTarget>> peer_targets(const PeerRequest& request,
                                                       const Array& array,
                                                       std::span<const double> rates,
                                                       const HugeBuffer& out, int threads);

// ---- for the files that implement one -----------------------------------------------------------

// A shared library, open until the process ends.
class Library {
 public:
  // `path` if it is given, else the first of `names` that the system's loader finds.
  Library(std::string_view peer, const std::string& path, std::span<const char* const> names);

  // Throws Unsupported naming the symbol if there is none.
  void* find(const char* name) const;
  template <class Function>
  Function* symbol(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

 private:
  std::string peer_;
  void* handle_;
};

// The array as a matrix, cut into one band of whole 4-row blocks per thread. Few peers have threads
// of their own for both directions; independent bands serve all of them.
struct Band {
  std::size_t offset, rows, cols;  // in values; cols is 1 for an array of one axis
  std::size_t elems() const noexcept { return rows * cols; }
};
std::vector<Band> bands_of(const Array& array, int threads);

std::vector<std::unique_ptr<BenchTarget>> zfp_targets(const PeerRequest& request,
                                                      const Array& array, const HugeBuffer& out,
                                                      int threads);
std::vector<std::unique_ptr<BenchTarget>> sz_targets(const PeerRequest& request, const Array& array,
                                                     const HugeBuffer& out, int threads);

}  // namespace tuckfold::cli
