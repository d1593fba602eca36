// The limits of accelerators: memory, operators, types and times, from the files devices/*.json.
//
//   const DeviceInfo sn30 = read_device("devices/sn30.json");
//   const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
//   const Fit fit = fits(sn30, spec, DType::F32, {100, 3, 512, 512}, Direction::Both);
//   // fit.fits is false; fit.why says which limit; fit.remedy: "use serialize=2"
//
// Both answers are about the codec in plain operators, as `tuckfold export` writes it, and use the
// files alone: no device is queried. docs/devices.md describes their fields.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/codec.h"
#include "tuckfold/export.h"

namespace tuckfold {

// The source of a number: a key of Device::sources, and a page, table or section of that source.
struct Citation {
  std::string source, at;
};

struct DeviceNumber {
  double value = 0;
  Citation from;
  std::string note;
};

// A limit that a graph must not exceed.
struct DeviceLimit {
  enum class Rule : unsigned char {
    MemoryBytes,  // everything that lives at once
    MatrixBytes,  // each matrix that a product takes or gives
    MatrixSide,   // the longer side of these
    Planes,       // planes; one that is smaller than `sample` counts as the part of it that it is
  };
  Rule rule;
  double value;
  Shape sample;
  std::string text;  // what is limited, as in "one PMU holds 0.5 MiB"
  Citation from;
};

// t = t0 + in/B_in + out/B_out + flops/F, as seen from the host. Several settings bound the range
// that the sources allow.
struct HostCallModel {
  struct Setting {
    double t0_s = 0;
    double in_bytes_per_s = 0, out_bytes_per_s = 0, flops = 0;  // 0: takes no time
  };
  // A source says that calls take as long as a small one until the tensor is larger: the interval
  // holds that, too.
  struct Flat {
    double seconds = 0;
    Shape until;  // batch first: tensors of at most that batch, with samples of at most its values
    Citation from;
  };
  std::vector<Setting> settings;
  std::optional<Flat> flat;
  bool uncompressed = false;  // bytes count as they are unpacked, in both directions
  double error = 0;           // largest relative error against its points
  std::string points;         // what it was fitted to
  std::string note;           // what was timed, where that is not all of a call
  Citation from;
};

// A sentence of a source about speed: GB/s of uncompressed data, from the least to the most.
struct Statement {
  std::string text;
  std::string direction;  // "pack", "unpack" or "both"
  double gbps_low = 0, gbps_high = 0;
  Shape shape;            // of the tensor, where it says; batch first
  std::vector<int> keep;  // of what it speaks; empty: of all
  Citation from;
};

// How a program lies in the memory of tiles, each of which has on_chip_bytes_per_unit. Bytes of a
// vertex, an edge and so on are assumptions that the file names as such.
struct TileModel {
  double workers = 1;            // threads of a tile: vertices that a tile runs at once
  double vertex_bytes = 0;       // state of a vertex
  double edge_bytes = 0;         // a pointer of a vertex to data
  double compute_set_bytes = 0;  // control code of a compute set, on each tile
  double message_bytes = 0;      // exchange code of each piece of data that a tile receives
  double code_bytes = 0;         // what vertices execute, on each tile
  double temporary_share = 1;    // of a tile's memory that one product may use
  Citation from;
};

struct DeviceInfo {
  std::string name, title, kind, target, software;
  std::map<std::string, std::string> sources;
  std::map<std::string, DeviceNumber> numbers;  // "on_chip_bytes", "peak_f32_flops" … in SI units
  std::vector<DType> dtypes;
  Citation dtypes_from;
  std::map<std::string, Citation> operators;  // that it has, by the names of docs/devices.md
  struct Missing {
    std::string text;
    Citation from;
  };
  std::map<std::string, Missing> missing;  // operators that a source says it lacks
  std::vector<DeviceLimit> limits;
  std::optional<HostCallModel> host_call;
  struct Slower {
    double low = 1, high = 1;  // factors of what host_call gives; below 1: faster than that
    double t0_s = 0, s_per_value = 0;
    Citation from;
    std::string note;
  };
  std::optional<Slower> serialize, triangle;  // what these cost
  std::optional<TileModel> tiles;             // for layers
  std::vector<Statement> stated;
  std::vector<Missing> restrictions;  // more that its sources say
  std::string file;                   // which read_device read
};

// Reads and checks one file. Throws InvalidArgument with the wrong field's name, and Io if the file
// cannot be read.
TUCKFOLD_API DeviceInfo read_device(const std::string& path);
TUCKFOLD_API DeviceInfo parse_device(std::string_view json, std::string_view path);

// The question: packing, unpacking, or both.
enum class Direction : unsigned char { Both, Pack, Unpack };

struct Fit {
  bool fits = true;
  std::string why;  // one line, with the source
  // The fewest changes with which it fits, where some do: "use shape=square and serialize=2".
  std::string remedy;
};

// Throws as layout does, and Unsupported if the codec cannot be written in plain operators.
TUCKFOLD_API Fit fits(const DeviceInfo& device, const CodecSpec& spec, DType dtype,
                      const Shape& shape, Direction direction);

// A training step of one layer in plain operators on tiles.
struct TileCount {
  std::int64_t compute_sets = 0, vertices = 0, edges = 0;
  // Of each tile: weights, gradients, states and activations; the program; the largest temporaries.
  double data_bytes = 0, program_bytes = 0, temporary_bytes = 0;

  double bytes() const { return data_bytes + program_bytes + temporary_bytes; }
};

struct LayerQuestion {
  std::string text;  // of a structured layer
  std::int64_t in = 0, out = 0, samples = 0;
  DType dtype = DType::F32;
  int states = 1;  // of the optimizer, for each weight
};

struct LayerFit {
  bool fits = true;
  std::string why;                 // one line, with the source
  double bytes = 0, most = 0;      // needed and there; of a tile where there is a model of tiles
  std::optional<TileCount> tiles;  // where there is one
  // The largest power of two of features, to as many, with which the same layer fits; 0: none. No
  // larger one than kMostFeatures is tried.
  std::int64_t largest = 0;
  static constexpr std::int64_t kMostFeatures = std::int64_t{1} << 20;
};

// Whether a training step of the layer fits. Throws as StructuredLayer does, and Unsupported where
// the file gives no memory.
TUCKFOLD_API LayerFit fits(const DeviceInfo& device, const LayerQuestion& asked);

struct HostCallTime {
  double seconds = 0, low = 0, high = 0;  // high is infinite where only a bound is known
  std::string how;
};

// The time of one call from the host, for Direction::Pack or Unpack.
TUCKFOLD_API HostCallTime host_call_time(const DeviceInfo& device, const CodecSpec& spec,
                                         DType dtype, const Shape& shape, Direction direction);

}  // namespace tuckfold
