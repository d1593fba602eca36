#include "codec/registry.h"

#include <algorithm>
#include <array>

#include "base/cuda/runtime.h"
#include "base/fail.h"
#include "codec/nonzero_quant/nonzero_quant.h"

namespace tuckfold {

namespace dct_chop {
TUCKFOLD_WEAK extern const CudaPair kWithBlockQuant;
}

namespace {

// In the order of the documentation, which is also the order in which `choose` tries them.
constexpr std::array kRows = {&kRaw,     &kDctChop, &kDctQuant, &kBlockQuant, &kNonzeroQuant,
                              &kBounded, &kBits,    &kMask,     &kPositive,   &kPoolIndex,
                              &kBytesOf, &kZfp,     &kShuffle,  &kZstd};

const auto& infos() {
  // Made on first use, since rows are initialized in other files.
  static const auto kInfos = [] {
    std::array<CodecInfo, kRows.size()> list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i] = kRows[i]->info;
      list[i].cuda = kRows[i]->cuda != nullptr;
      list[i].exact = kRows[i]->exact;
    }
    return list;
  }();
  return kInfos;
}

}  // namespace

std::span<const Codec* const> codec_rows() { return kRows; }

std::span<const CodecInfo> list_codecs() { return infos(); }

const Codec& row_of(const Stage& stage) {
  return *kRows[static_cast<std::size_t>(stage.codec - infos().data())];
}

const CudaPair* cuda_pair(const Codec& first, const Codec& second) {
  for (const CudaPair* pair : {&dct_chop::kWithBlockQuant}) {
    if (pair != nullptr && pair->first == &first && pair->second == &second) return pair;
  }
  return nullptr;
}

bool rows_independent(const CodecSpec& spec, const Shape& shape) {
  if (spec.stages().size() != 1 || shape.rank() == 0) return false;
  const Stage& stage = spec.stages()[0];
  const Codec& row = row_of(stage);
  return row.rows_independent != nullptr && row.rows_independent(stage, shape);
}

std::optional<double> error_bound(const CodecSpec& spec) {
  if (spec.stages().empty()) return std::nullopt;
  const auto rest = spec.stages().subspan(1);
  if (!std::all_of(rest.begin(), rest.end(), [](const Stage& s) { return row_of(s).exact; })) {
    return std::nullopt;
  }
  const Stage& first = spec.stages()[0];
  const Codec& row = row_of(first);
  if (row.error_bound != nullptr) return row.error_bound(first);
  return row.exact ? std::optional(0.0) : std::nullopt;
}

}  // namespace tuckfold
