// The operators that exported files use, by the names that devices/*.json have for them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "portable/targets.h"

namespace tuckfold::portable {

// Those in a target's file of a graph, each once, in the order of use.
std::vector<std::string_view> operators_of(const Graph& graph, Target target);

// Those in any file.
std::span<const std::string_view> all_operators();

}  // namespace tuckfold::portable
