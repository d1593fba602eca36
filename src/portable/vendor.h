// What a Python file needs of each SDK: imports, and the calls that compile and run a module. They
// follow the SDKs' public documentation; none of the SDKs was run.
#pragma once

#include <string>
#include <string_view>

#include "portable/targets.h"

namespace tuckfold::portable {

std::string_view sdk_note(Target target);  // for the opening docstring
std::string sdk_imports(Target target);
// They use MODULES, example() and report(), which every file has.
std::string_view sdk_calls(Target target);

}  // namespace tuckfold::portable
