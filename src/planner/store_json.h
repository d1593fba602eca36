// Problems and plans of storage as JSON, for languages other than C++.
#pragma once

#include <string>
#include <string_view>

namespace tuckfold::planner {

// {"base": [40, 40], "noise_weight": 1, "seconds_weight": 1, "budget": 150,
//  "items": [{"name": "conv1.input", "choices": [
//    {"kind": "codec", "how": "block_quant(bits=4)", "spans": [[0, 1, 13], [1, 1, 100]],
//     "seconds": 2e-4, "noise": 0.01}, …]}, …]}
//
// With "budget" the plan of least cost within it, else the plan of least peak within "noise" and
// "seconds", where these are given. All but base and items may be left out. The result is
// {"fits": true, "choice": [0, …], "peak": 140, "peak_position": 1, "noise": 0.0, "seconds": 0.0,
//  "cost": 0.0, "why": ""}. Throws InvalidArgument for a text that is no problem.
std::string plan_json(std::string_view problem);

}  // namespace tuckfold::planner
