// Plans of storage through the C API.
#include <string>

#include "capi/handles.h"
#include "planner/store_json.h"
#include "tuckfold/c.h"

using namespace tuckfold;        // NOLINT(google-build-using-namespace)
using namespace tuckfold::capi;  // NOLINT(google-build-using-namespace)

tuckfold_status tuckfold_plan_storage(const char* problem, const char** plan) {
  return guarded([&] {
    static thread_local std::string text;
    const char** const place = &given("plan_storage", "the place for the plan", plan);
    text = planner::plan_json(&given("plan_storage", "the problem", problem));
    *place = text.c_str();
  });
}
