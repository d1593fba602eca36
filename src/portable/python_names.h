// Names for a Python file: those that `import` takes, and that no other module has.
#pragma once

#include <string>
#include <string_view>

namespace tuckfold::portable {

// Whether NAME.py can be imported as NAME: an identifier, and no keyword.
bool can_be_imported(std::string_view name);

// Whether Python's standard library, torch, numpy, ONNX's packages, an SDK or this library has a
// module of that name. Python looks beside the program first, so that NAME.py would be taken for it.
bool is_known_module(std::string_view name);

// A name near this one of which neither is wrong: my_codec for my-codec, torch_codec for torch.
std::string importable_name(std::string_view name);

}  // namespace tuckfold::portable
