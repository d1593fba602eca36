// Sources made of sources: samples appended, arrays side by side, or some arrays of one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inputs/formats.h"

namespace tuckfold {

struct NamedSource {
  std::string path;  // for messages
  std::unique_ptr<Source> source;
};

// The samples of all, in order; their arrays must be equal. At least one.
std::unique_ptr<Source> join_samples(std::vector<NamedSource> parts);

// The arrays of all; their numbers of samples must be equal and names differ. At least one.
std::unique_ptr<Source> join_arrays(std::vector<NamedSource> parts);

// The named arrays in that order. Throws InvalidArgument for a name that is not there.
std::unique_ptr<Source> pick_arrays(std::unique_ptr<Source> source,
                                    std::span<const std::string> names);

// For formats of one file each: opens every input, and appends their samples in order.
using OpenOne = std::unique_ptr<Source> (*)(const SourceInput&, const SourceOptions&);
template <OpenOne open_one>
std::unique_ptr<Source> open_each(std::span<const SourceInput> inputs,
                                  const SourceOptions& options) {
  std::vector<NamedSource> parts;
  for (const SourceInput& input : inputs) parts.push_back({input.path, open_one(input, options)});
  return join_samples(std::move(parts));
}

}  // namespace tuckfold
