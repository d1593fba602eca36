// CIFAR's binary files: records of a label, in CIFAR-100 two, and 3 x 32 x 32 bytes.
#include <algorithm>

#include "base/fail.h"
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

constexpr std::size_t kPixels = 3 * 32 * 32;

struct Label {
  std::string_view name;
  int classes;
};
struct Kind {
  std::string_view name;
  std::span<const Label> labels;  // bytes at the front of a record

  std::size_t record() const { return labels.size() + kPixels; }
};
constexpr Label kTen[] = {{"label", 10}};
constexpr Label kHundred[] = {{"coarse_label", 20}, {"label", 100}};
constexpr Kind kKinds[] = {{"CIFAR-10", kTen}, {"CIFAR-100", kHundred}};

// The first byte among the first `records` that is no label of this kind, or nothing.
const std::byte* wrong_label(const Kind& kind, std::span<const std::byte> bytes,
                             std::size_t records) {
  for (std::size_t i = 0; i < std::min(records, bytes.size() / kind.record()); ++i) {
    for (std::size_t j = 0; j < kind.labels.size(); ++j) {
      const std::byte& label = bytes[i * kind.record() + j];
      if (static_cast<int>(label) >= kind.labels[j].classes) return &label;
    }
  }
  return nullptr;
}

bool fits(const Kind& kind, std::span<const std::byte> bytes) {
  return !bytes.empty() && bytes.size() % kind.record() == 0 && !wrong_label(kind, bytes, 16);
}

// No bytes identify the format; size, labels and extension together do.
bool looks_like(const SourceInput& input) {
  return input.extension() == ".bin" &&
         std::ranges::any_of(kKinds, [&](const Kind& kind) { return fits(kind, input.bytes()); });
}

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions&) {
  const std::span<const std::byte> bytes = input.bytes();
  const auto kind = std::ranges::find_if(kKinds, [&](const Kind& row) { return fits(row, bytes); });
  if (kind == std::end(kKinds)) {
    fail(Errc::CorruptData,
         "[cifar] '{}' must have records of 3073 bytes (CIFAR-10) or 3074 (CIFAR-100), labels "
         "first, got {} bytes",
         input.path, bytes.size());
  }
  if (const std::byte* wrong = wrong_label(*kind, bytes, bytes.size())) {
    fail(Errc::CorruptData, "[cifar] '{}': byte {} must be a label of {}, got {}", input.path,
         wrong - bytes.data(), kind->name, static_cast<int>(*wrong));
  }
  const auto samples = static_cast<std::int64_t>(bytes.size() / kind->record());
  const auto step = static_cast<std::int64_t>(kind->record());
  SlabBuilder builder("cifar", input.path);
  builder.keep(input.file);
  builder.add("image",
              Slab{.data = bytes.data() + kind->labels.size(), .samples = samples, .step = step},
              {3, 32, 32});
  for (std::size_t j = 0; j < kind->labels.size(); ++j) {
    builder.add(std::string(kind->labels[j].name),
                Slab{.data = bytes.data() + j, .samples = samples, .step = step}, {});
  }
  return builder.finish();
}

}  // namespace

const SourceFormat kCifarSource = {.name = "cifar",
                                   .summary = "CIFAR-10's and CIFAR-100's binary files",
                                   .extensions = "",
                                   .looks_like = looks_like,
                                   .open = open_each<open_one>};

}  // namespace tuckfold
