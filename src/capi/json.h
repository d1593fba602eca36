// The C API's JSON: the registry, and one spec.
#pragma once

#include <string>

#include "tuckfold/codec.h"

namespace tuckfold::capi {

// As `tuckfold codecs --json` prints it.
std::string codecs_json();

// [{"name": "dct_chop", "params": {"block": 8, …}}, …]
std::string spec_json(const CodecSpec& spec);

}  // namespace tuckfold::capi
