// Arrays whose numbers netCDF readers multiply by scale_factor: bounds count the numbers that are stored.
#pragma once

#include <string>
#include <string_view>

#include "cli/dataset/codec_option.h"
#include "cli/dataset/outcome.h"
#include "inputs/source.h"

namespace tuckfold::cli {

// The attribute scale_factor that a source, or the metadata of a .tuck file, has for an array; 1 where
// it has none.
double scale_factor_of(const Source& source, std::string_view array);
double scale_factor_of(std::string_view metadata, std::string_view array);

// What to say of a bound on the error of an array; empty where the factor does not change it.
std::string note_on_scale(std::string_view array, double scale_factor, double bound);
// Says it of an array that is to be packed with a bound: that of --max-error, or of a codec that was
// given. Says nothing of arrays that lose nothing.
void warn_of_scale(const char* verb, const CodecOption& codec, const Outcome& one,
                   double scale_factor);

}  // namespace tuckfold::cli
