// What export, fits and time share: a codec and a tensor in plain operators, and devices by name.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/command.h"
#include "tuckfold/devices.h"

namespace tuckfold::cli {

struct PortableOptions {
  std::string spec, shape, dtype = "f32", only;

  // Adds --shape, --dtype and --only; the spec is each verb's own.
  void add_to(Command& verb);
};

// The options, read and checked.
struct PortableCodec {
  CodecSpec spec;
  DType dtype;
  Shape shape;
  Direction direction;

  PortableCodec(const char* verb, const PortableOptions& options);
  std::string text() const;  // "dct_chop(keep=4) of f32 100x3x256x256"
};

// 100,3,256,256 or 100x3x256x256; and f32, f16 or bf16.
Shape parse_shape(const char* verb, const std::string& text);
DType parse_portable_dtype(const char* verb, const std::string& text);

// A device by its name, or by the path of its file. Names are looked up in the folder that
// $TUCKFOLD_DEVICES names, then in those that were installed.
DeviceInfo find_device(const char* verb, const std::string& name);
std::vector<std::string> device_names(const char* verb);

// Its name, with the path of a file that lies in $TUCKFOLD_DEVICES: it may have the name of one that
// was installed.
std::string device_text(const DeviceInfo& device);

// Why it does not fit, and what does.
std::string refusal_text(const Fit& fit);

// The word itself if it is one of these; else throws InvalidArgument with the nearest one.
std::string known_word(const char* verb, std::string_view kind, const std::string& word,
                       std::span<const std::string_view> words);

}  // namespace tuckfold::cli
