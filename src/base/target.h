// Which SIMD target the kernels run on. TUCKFOLD_CPU in the environment forces one by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tuckfold {

// Names of the targets that this build has and this CPU runs, best first: "avx3", "avx2", "sse4" …
std::vector<std::string> cpu_targets();

// Runs kernels on one of them from now on; throws InvalidArgument for any other name.
void use_cpu_target(std::string_view name);

// Reads TUCKFOLD_CPU the first time; called before every dispatch.
void choose_cpu_target();

}  // namespace tuckfold
