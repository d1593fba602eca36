// The files that a codec is exported to. All are printed from the same graphs.
//
//   const Export codec{spec, DType::F32, {100, 3, 256, 256}, pack, unpack};
//   write("codec.py", torch_file(codec, Target::Poptorch));
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "portable/graph.h"
#include "tuckfold/codec.h"

namespace tuckfold::portable {

enum class Target : unsigned char { Torch, Onnx, Poptorch, Samba, Cerebras, Groq };

// By the names that the command line and devices/*.json have for them, in the order of Target.
inline constexpr std::array<std::string_view, 6> kTargets = {"torch", "onnx",     "poptorch",
                                                             "samba", "cerebras", "groq"};

struct Export {
  CodecSpec spec;
  DType dtype;
  Shape shape;
  std::optional<Graph> pack, unpack;
};

// A Python file with a module for each graph that there is: torch alone, or with the calls that the
// target's SDK needs. Not for Target::Onnx.
std::string torch_file(const Export& codec, Target target);

// An ONNX model of one graph. Matrices are stored as they are where the model stays below 1 MB, and
// else built from one block by Mul and Reshape, which runtimes do once.
inline constexpr int kMinOpset = 13, kMaxOpset = 25;
std::string onnx_model(const Export& codec, const Graph& graph, int opset);
bool builds_matrices(const Graph& graph);  // whether a model of it does

}  // namespace tuckfold::portable
