// Whole arrays of any input, .tuck files too, for verbs that try codecs on them.
//
//   for (const Array& array : load_arrays("bench", inputs, ReadAs::Default, Take::Each, threads)) …
#pragma once

#include <vector>

#include "cli/dataset/array.h"
#include "cli/dataset/dataset.h"

namespace tuckfold::cli {

inline constexpr const char* kSelectOne =
    "The array; default: the only one whose samples have two axes or more";

// Of inputs with several arrays: those whose samples have two axes or more, or the only one of these.
enum class Take : unsigned char { Each, One };

// An array of a file with several is called FILE:NAME. Throws InvalidArgument, with the names that
// there are, where arrays must be selected.
std::vector<Array> load_arrays(const char* verb, const InputOptions& inputs, ReadAs read_as,
                               Take take, int threads);

}  // namespace tuckfold::cli
