// A small dataset for tests: three arrays whose samples follow from their numbers, so that a test
// can check any sample that is read.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tuckfold/container.h"
#include "tuckfold/error.h"

namespace tuckfold::ref {

// A folder of its own, gone with the test; in memory where that can be had, since some tests write
// thousands of files.
class TempFolder {
 public:
  TempFolder() {
    const std::filesystem::path shared = "/dev/shm";
    const bool in_memory = ::access(shared.c_str(), W_OK) == 0;
    std::string name =
        (in_memory ? shared : std::filesystem::temp_directory_path()) / "tuckfold_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Planes are lossy, the rest is exact; chunks of 2 and 4 samples.
inline std::vector<ArrayInfo> small_arrays() {
  return {{.name = "plane",
           .dtype = DType::F32,
           .shape = {8, 8},
           .codec = CodecSpec::parse("dct_chop(keep=2)"),
           .samples_per_chunk = 2},
          {.name = "mask",
           .dtype = DType::U8,
           .shape = {4},
           .codec = CodecSpec::parse("zstd"),
           .samples_per_chunk = 4},
          {.name = "label", .dtype = DType::I64, .samples_per_chunk = 4}};
}

// Samples first .. first + count of the three.
struct Batch {
  std::vector<float> planes;
  std::vector<std::uint8_t> masks;
  std::vector<std::int64_t> labels;

  Batch(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      for (int k = 0; k < 64; ++k) planes.push_back(static_cast<float>(i * 10 + k % 8));
      for (int k = 0; k < 4; ++k) masks.push_back(static_cast<std::uint8_t>(i + k));
      labels.push_back(i * 1000003);
    }
  }
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
  std::vector<ConstTensorView> views() const {
    return {{planes.data(), DType::F32, {count(), 8, 8}},
            {masks.data(), DType::U8, {count(), 4}},
            {labels.data(), DType::I64, {count()}}};
  }
};

inline const WriteOptions kQuick{.sync = false};  // for tests that write hundreds of files

inline void write_small(const std::string& path, std::int64_t samples, std::int64_t batch,
                        const WriteOptions& options = kQuick) {
  FileWriter writer(path, small_arrays(), options);
  while (writer.samples() < samples) {
    const std::int64_t count = std::min(batch, samples - writer.samples());
    writer.write(Batch(writer.samples(), count).views());
  }
  writer.finish();
}

// What is read of a plane: what packing and unpacking it alone gives.
inline std::vector<float> plane_read(std::int64_t sample) {
  const Batch batch(sample, 1);
  std::vector<std::byte> packed(4096);
  const CodecSpec spec = small_arrays()[0].codec;
  packed.resize(pack(spec, ConstTensorView(batch.planes.data(), DType::F32, {1, 8, 8}), packed));
  std::vector<float> out(64);
  unpack(spec, packed, TensorView(out.data(), DType::F32, {1, 8, 8}));
  return out;
}

// Whether samples of the file are those that were written under `numbers`.
inline bool holds(const FileReader& reader, const std::vector<std::int64_t>& numbers) {
  if (reader.samples() != static_cast<std::int64_t>(numbers.size())) return false;
  const std::size_t count = numbers.size();
  std::vector<float> planes(64 * count);
  std::vector<std::uint8_t> masks(4 * count);
  std::vector<std::int64_t> labels(count);
  const std::int64_t n = reader.samples();
  reader.read(0, 0, n, TensorView(planes.data(), DType::F32, {n, 8, 8}), 2);
  reader.read(1, 0, n, TensorView(masks.data(), DType::U8, {n, 4}), 1);
  reader.read(2, 0, n, TensorView(labels.data(), DType::I64, {n}), 1);
  for (std::size_t i = 0; i < count; ++i) {
    const Batch wanted(numbers[i], 1);
    const std::vector<float> plane = plane_read(numbers[i]);
    if (!std::equal(plane.begin(), plane.end(), planes.begin() + static_cast<long>(64 * i)) ||
        !std::equal(wanted.masks.begin(), wanted.masks.end(),
                    masks.begin() + static_cast<long>(4 * i)) ||
        labels[i] != wanted.labels[0]) {
      return false;
    }
  }
  return true;
}

inline std::vector<std::int64_t> numbers_to(std::int64_t end) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < end; ++i) numbers.push_back(i);
  return numbers;
}

inline Errc code_thrown(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::Internal;  // nothing was thrown
}

}  // namespace tuckfold::ref
