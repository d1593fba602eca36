#include "cli/bench/peer.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "base/fail.h"

namespace tuckfold::cli {

PeerRequest PeerRequest::parse(std::string_view text) {
  const auto complain = [&](std::string_view rule) {
    invalid("[bench] {}, got '{}'; write zfp, zfp@2,4.5, sz3=PATH or szx=PATH@1e-3", rule, text);
  };
  PeerRequest request;
  std::string_view rest = text;
  if (const std::size_t at = rest.rfind('@'); at != rest.npos) {
    std::string_view list = rest.substr(at + 1);
    rest = rest.substr(0, at);
    for (bool more = true; more;) {
      const std::size_t comma = std::min(list.find(','), list.size());
      double value = 0;
      const auto [stop, error] = std::from_chars(list.data(), list.data() + comma, value);
      if (error != std::errc{} || stop != list.data() + comma || !std::isfinite(value) ||
          value <= 0) {
        complain("a peer's settings are positive numbers");
      }
      request.settings.push_back(value);
      more = comma < list.size();
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
  }
  const std::size_t equals = rest.find('=');
  request.name = rest.substr(0, equals);
  if (equals != rest.npos) request.path = rest.substr(equals + 1);
  if (request.name != "zfp" && request.name != "sz3" && request.name != "szx") {
    complain("a peer is zfp, sz3 or szx");
  }
  if (equals != rest.npos && request.path.empty())
    complain("the path of a peer's library is empty");
  return request;
}

std::vector<std::unique_ptr<BenchTarget>> peer_targets(const PeerRequest& request,
                                                       const Array& array,
                                                       std::span<const double> rates,
                                                       const HugeBuffer& out, int threads) {
  PeerRequest filled = request;
  if (request.name != "zfp") {
    if (filled.settings.empty()) filled.settings = {1e-2, 1e-3};
    return sz_targets(filled, array, out, threads);
  }
  if (filled.settings.empty()) filled.settings.assign(rates.begin(), rates.end());
  if (filled.settings.empty()) filled.settings = {2, 4, 8, 16};
  return zfp_targets(filled, array, out, threads);
}

Library::Library(std::string_view peer, const std::string& path, std::span<const char* const> names)
    : peer_(peer) {
  if (!path.empty()) {
    handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) fail(Errc::Io, "[bench] cannot load peer {}: {}", peer, ::dlerror());
    return;
  }
  for (const char* name : names) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
  }
  fail(Errc::Unsupported,
       "[bench] peer {} is not installed (no {}); name its library with --peer {}=PATH", peer,
       fmt::join(names, ", no "), peer);
}

void* Library::find(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (found == nullptr) {
    fail(Errc::Unsupported, "[bench] the library of peer {} has no symbol {}; give one that has it",
         peer_, name);
  }
  return found;
}

std::vector<Band> bands_of(const Array& array, int threads) {
  const std::size_t rank = array.shape.rank();
  const auto elems = static_cast<std::size_t>(array.shape.elems());
  const std::size_t cols = rank < 2 ? 1 : static_cast<std::size_t>(array.shape[rank - 1]);
  const std::size_t rows = elems / cols;
  const std::size_t block_rows = (rows + 3) / 4;
  const std::size_t count = std::min(static_cast<std::size_t>(threads), block_rows);
  std::vector<Band> bands;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = block_rows * i / count * 4;
    const std::size_t last = std::min(block_rows * (i + 1) / count * 4, rows);
    bands.push_back({.offset = first * cols, .rows = last - first, .cols = cols});
  }
  return bands;
}

}  // namespace tuckfold::cli
