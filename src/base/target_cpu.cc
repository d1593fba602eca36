// Highway's choice of target, under our names and with our errors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/target_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
// Exists once per target so that HWY_EXPORT can list the targets of this build.
std::int64_t own_target() { return HWY_TARGET; }
}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>

#include "base/fail.h"
#include "base/target.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

HWY_EXPORT(own_target);

std::string name_of(std::int64_t target) {
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace

std::vector<std::string> cpu_targets() {
  std::vector<std::string> names;
  // Better targets have lower bits.
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t bits = usable; bits != 0; bits &= bits - 1)
    names.push_back(name_of(bits & -bits));
  return names;
}

void use_cpu_target(std::string_view name) {
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t bits = usable; bits != 0; bits &= bits - 1) {
    if (name_of(bits & -bits) == name) {
      hwy::GetChosenTarget().Update(bits & -bits);
      return;
    }
  }
  invalid("[cpu] TUCKFOLD_CPU must be one of {} here, got '{}'", fmt::join(cpu_targets(), ", "),
          name);
}

void choose_cpu_target() {
  static std::once_flag once;  // a throw leaves it unset: every call fails, not only the first
  std::call_once(once, [] {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const char* name = std::getenv("TUCKFOLD_CPU");
    if (name != nullptr && *name != 0) use_cpu_target(name);
  });
}

std::string cpu_target() {
  choose_cpu_target();
  return name_of(HWY_DYNAMIC_DISPATCH(own_target)());
}

}  // namespace tuckfold
#endif  // HWY_ONCE
