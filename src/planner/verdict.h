// Whether a codec fits a device, and what near it would; fits() is made of these.
#pragma once

#include <cstdint>
#include <string>

#include "tuckfold/devices.h"

namespace tuckfold {

struct Question {
  CodecSpec spec;
  DType dtype;
  Shape shape;
  Direction direction;
};

// In the order in which they are looked for: where there is a Limit, types and operators are there.
enum class Fault : unsigned char { None, Type, Operator, Limit };

struct Verdict {
  Fault fault = Fault::None;
  std::string why;
  std::int64_t peak_bytes = 0;
  bool builds_matrices = false;  // by operators, as ONNX models of large tiles do

  void add(Fault kind, std::string text) {
    if (fault != Fault::None || text.empty()) return;
    fault = kind;
    why = std::move(text);
  }
};

std::string bytes_text(double bytes);  // "1.5 MB"
std::string source_text(const Citation& from);

// Throws as fits() does.
Verdict verdict_on(const DeviceInfo& device, const Question& asked);

// Whether a limit of the device is surely exceeded; it takes no graph to tell. The direction is one.
bool exceeds(const DeviceInfo& device, const Question& asked);

// The fewest changes with which it fits, as "use shape=square and serialize=2"; empty where none of
// those that are tried helps.
std::string remedy_for(const DeviceInfo& device, const Question& asked, Fault fault);

}  // namespace tuckfold
