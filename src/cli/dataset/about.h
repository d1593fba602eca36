// What inputs say about their samples, as the member "source" of a file's metadata.
#pragma once

#include <string>

#include "inputs/source.h"

namespace tuckfold::cli {

// The user's metadata, empty or a JSON object, with what the source says; unchanged where the user has
// a "source" too. Names of samples are left out where `with_files` is not set.
std::string with_about(const std::string& metadata, const Source& source, bool with_files);

// Metadata for other samples than they were written with: without names of samples.
std::string without_files(const std::string& metadata);

// Throws InvalidArgument where a file that samples are added to says other classes than the source.
void check_classes(const std::string& path, const std::string& metadata, const Source& source);

}  // namespace tuckfold::cli
