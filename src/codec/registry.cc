#include "codec/registry.h"

#include <array>

#include "base/cuda/runtime.h"
#include "base/fail.h"

namespace tuckfold {
namespace {

// Initialized on first use, since rows live in other files.
const auto& rows() {
  static const std::array kRows = {kRaw,  kDctChop, kDctQuant, kBlockQuant, kBounded,
                                   kBits, kMask,    kBytesOf,  kZfp,        kZstd};
  return kRows;
}

const auto& infos() {
  static const auto kInfos = [] {
    std::array<CodecInfo, std::tuple_size_v<std::remove_cvref_t<decltype(rows())>>> list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i] = rows()[i].info;
      list[i].cuda = cuda::built() && rows()[i].pack_cuda != nullptr;
    }
    return list;
  }();
  return kInfos;
}

}  // namespace

std::span<const Codec> codec_rows() { return rows(); }

std::span<const CodecInfo> list_codecs() { return infos(); }

const Codec& row_of(const Stage& stage) {
  return rows()[static_cast<std::size_t>(stage.codec - infos().data())];
}

bool rows_independent(const CodecSpec& spec, const Shape& shape) {
  if (spec.stages().size() != 1 || shape.rank() == 0) return false;
  const Stage& stage = spec.stages()[0];
  const Codec& row = row_of(stage);
  return row.rows_independent != nullptr && row.rows_independent(stage, shape);
}

}  // namespace tuckfold
